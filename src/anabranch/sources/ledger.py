"""The ledger: which files have been handed out, each of them for ever.

A position must say which files it covers, and there may be millions. So the latest paths stand in
the position itself and the others in write-once *segments* in the source log, which the position
names. A segment that is at most twice as long as what is to be written is merged into it: every
segment is then more than twice as long as the next newer one, their number stays logarithmic, and
a path is rewritten a logarithmic number of times.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from os.path import split

import msgspec

from anabranch.errors import CorruptEntry, FutureFormat
from anabranch.protocol.sources import SourceLog

INLINE = 256
_KIND = "anabranch-paths"
_FORMAT = 1


class LedgerSegment(msgspec.Struct, frozen=True):
    """A file of the source log with that many paths."""

    name: str
    paths: int


class PathList(msgspec.Struct, frozen=True):
    """Paths in order: written out while they are few, else the name of a segment."""

    inline: tuple[str, ...] = ()
    segment: LedgerSegment | None = None


class Mark(msgspec.Struct, frozen=True):
    """What a position says of a ledger: segments from old to new, then the latest paths."""

    segments: tuple[LedgerSegment, ...] = ()
    recent: tuple[str, ...] = ()


class Ledger:
    """A growing set of paths. What it was at any time is a small `Mark`.

    Marks stay valid while their segments are kept: adding never changes a segment.
    """

    def __init__(self, mark: Mark, log: SourceLog) -> None:
        """Read the paths of a mark back."""
        self._log = log
        #: what a position has to keep to open this ledger again
        self.mark = mark
        self._names: defaultdict[str, set[str]] = defaultdict(set)
        for segment in mark.segments:
            self._remember(read_segment(segment, log))
        self._remember(mark.recent)

    def __contains__(self, path: str) -> bool:
        """Whether the path was added."""
        directory, name = split(path)
        return name in self.names_in(directory)

    def names_in(self, directory: str) -> Set[str]:
        """Names of the added files in one directory: kept so, because listings ask so."""
        return self._names.get(directory, frozenset())

    def add(self, paths: Sequence[str]) -> None:
        """Add paths that are not in it yet."""
        self._remember(paths)
        recent = (*self.mark.recent, *paths)
        if len(recent) <= INLINE:
            self.mark = Mark(self.mark.segments, recent)
        else:
            self.mark = Mark(self._spilled(recent), ())

    def _spilled(self, recent: tuple[str, ...]) -> tuple[LedgerSegment, ...]:
        older = list(self.mark.segments)
        paths = list(recent)
        while older and older[-1].paths <= 2 * len(paths):
            paths.extend(read_segment(older.pop(), self._log))
        # Sorted, because neighbours that share a directory compress well.
        return (*older, write_segment(sorted(paths), self._log, "seen"))

    def _remember(self, paths: Iterable[str]) -> None:
        for path in paths:
            directory, name = split(path)
            self._names[directory].add(name)


def keep_list(paths: Sequence[str], log: SourceLog, name_hint: str) -> PathList:
    """Keep paths in their order, in the position or in a segment."""
    if len(paths) <= INLINE:
        return PathList(inline=tuple(paths))
    return PathList(segment=write_segment(paths, log, name_hint))


def read_list(kept: PathList, log: SourceLog) -> list[str]:
    """Read kept paths back."""
    return list(kept.inline) if kept.segment is None else read_segment(kept.segment, log)


def write_segment(paths: Sequence[str], log: SourceLog, name_hint: str) -> LedgerSegment:
    """Write paths as one file: a line that says what it is, then compressed JSON."""
    body = zlib.compress(msgspec.json.encode(paths), level=1)
    head = f"{_KIND} {_FORMAT} {zlib.crc32(body):08x} {len(body)}\n"
    return LedgerSegment(log.write(name_hint, head.encode() + body), len(paths))


def read_segment(segment: LedgerSegment, log: SourceLog) -> list[str]:
    """Read a segment and check that it is whole and the one that was written."""
    head, _, body = log.read(segment.name).partition(b"\n")
    words = head.decode("ascii", "replace").split(" ")
    if words[0] == _KIND and len(words) > 1 and words[1].isdigit() and int(words[1]) > _FORMAT:
        raise FutureFormat(
            f"a list of input files has format {words[1]} and this version reads up to {_FORMAT}",
            where=segment.name,
            do="Run it with the newer version of Anabranch.",
        )
    if words == [_KIND, str(_FORMAT), f"{zlib.crc32(body):08x}", str(len(body))]:
        paths = msgspec.json.decode(zlib.decompress(body), type=list[str])
        if len(paths) == segment.paths:
            return paths
    raise CorruptEntry(
        "a list of input files is truncated or damaged",
        where=segment.name,
        do="Open the pipeline at a checkpoint before it was written.",
    )
