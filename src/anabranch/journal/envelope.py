"""The bytes of a journal entry: one line that says what it is, and the body.

The line is ``anabranch <format> <name> <crc32> <length> <nonce>``. The checksum covers all of the
others, so that an entry that is truncated, flipped, or copied under another name is known as such.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from anabranch.errors import CorruptEntry, FutureFormat, PastFormat
from anabranch.journal.entry_names import EntryName

FORMAT = 3

_HEADER = re.compile(rb"anabranch (\d{1,9}) (\S+) ([0-9a-f]{8}) (\d{1,15}) (\S+)\n")
_FORMAT_ALONE = re.compile(rb"anabranch (\d{1,9}) ")
_LONGEST_HEADER = 512
_NONCE = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class Entry:
    """What the journal holds under a name."""

    name: EntryName
    body: bytes
    nonce: str


def seal(name: EntryName, body: bytes, nonce: str) -> bytes:
    """The bytes of an entry."""
    if not _NONCE.fullmatch(nonce):
        raise ValueError(f"a nonce is 1 to 128 of A-Z a-z 0-9 _ . -, not {nonce!r}")
    text = str(name).encode()
    crc = _checksum(FORMAT, text, nonce.encode(), body)
    return b"anabranch %d %b %08x %d %b\n%b" % (FORMAT, text, crc, len(body), nonce.encode(), body)


def unseal(name: EntryName, data: bytes, where: str) -> Entry:
    """The entry that some bytes are, or ``CorruptEntry``, ``FutureFormat`` or ``PastFormat``."""
    header = _HEADER.match(data[:_LONGEST_HEADER])
    if header is None:
        _refuse_future(data, where)
        raise corrupt_entry(name, where, "its first line is damaged")
    version, said, crc, length, nonce = header.groups()
    body = data[header.end() :]
    if _checksum(FORMAT, said, nonce, body) != int(crc, 16):
        _refuse_future(data, where)
        if int(version) < FORMAT and _checksum(int(version), said, nonce, body) == int(crc, 16):
            raise PastFormat(
                f"A journal entry has format {int(version)}; this version reads format {FORMAT} "
                "only",
                where=where,
                do="Nothing was changed. Run the pipeline with the version of Anabranch that wrote "
                "this directory, or begin anew in another directory.",
            )
        raise corrupt_entry(name, where, _damage(len(body), int(length)))
    # From here on the content is whole as one of ours, so another number or length is damage.
    if int(version) != FORMAT:
        raise corrupt_entry(name, where, "its format number is damaged")
    if len(body) != int(length):
        raise corrupt_entry(name, where, _damage(len(body), int(length)))
    if said != str(name).encode():
        raise corrupt_entry(name, where, f"it is the entry {said.decode(errors='replace')}")
    return Entry(name, body, nonce.decode())


def corrupt_entry(name: EntryName, where: str, why: str) -> CorruptEntry:
    """The error of an entry that cannot be used."""
    return CorruptEntry(
        f"The journal entry {name} is damaged: {why}",
        where=where,
        do="Nothing was changed. Restore the directory from a copy, or open an older checkpoint.",
    )


def _checksum(version: int, name: bytes, nonce: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d %b %b " % (version, name, nonce)))


def _damage(found: int, length: int) -> str:
    if found != length:
        return f"it has {found} bytes instead of {length}"
    return "its checksum does not fit its content"


def _refuse_future(data: bytes, where: str) -> None:
    found = _FORMAT_ALONE.match(data)
    if found is not None and int(found[1]) > FORMAT:
        raise FutureFormat(
            f"A journal entry has format {int(found[1])}; this version reads up to {FORMAT}",
            where=where,
            do="Nothing was changed. Use the version of Anabranch that wrote this directory, or "
            "a newer one.",
        )
