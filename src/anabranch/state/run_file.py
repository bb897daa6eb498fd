"""Runs: immutable files of one operator's state rows, sorted by (hash, key, sub-key).

Operations
    ``write_run`` makes one under a name that is its own; ``open_run`` maps it.

Guarantees
    A run is an Arrow IPC file whose schema metadata (repeated in the footer) has the format, the
    number of bins, each bin's rows and bytes and, where rows expire, how many of them do when,
    and the blobs that values are in.
    Record batches end where bins do: neighbouring bins share a batch up to 1 MiB, a larger bin has
    one of its own, so that a bin is one byte range. Opening compares size and checksum with what
    was committed; a run that opens is whole. Opening executes nothing that the file says: there
    is no pickle in it.

Non-guarantees
    A file that is changed in place after it was opened is not noticed; runs are write-once.
    One bin's rows must stay below 2 GiB per text or binary column.

Failure
    ``MissingRun``, ``CorruptRun``, ``FutureFormat``, each naming the file.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.errors import CorruptRun, FutureFormat, MissingRun, StoreError
from anabranch.state.bins import BinSet, Mask, bin_of, bin_offsets
from anabranch.state.disk import disk
from anabranch.state.expiry import Histogram, histogram_of
from anabranch.state.files import create_bulk, store_errors
from anabranch.state.kept_open import KeptOpen
from anabranch.state.keys import Index
from anabranch.state.layout import Layout
from anabranch.state.row_bytes import bytes_between
from anabranch.state.run_list import FORMAT, BlobInfo, RunInfo
from anabranch.state.sorted_rows import SortedRows, hash_column

BATCH_BYTES = 1 << 20
CACHED_RUNS = 512
"""How many runs a process keeps open, the last ones used."""

_FORMAT = b"anabranch.format"
_BINS = b"anabranch.bins"
_ROWS = b"anabranch.bin_rows"
_BYTES = b"anabranch.bin_bytes"
_EDGES = b"anabranch.expiry"
_EXPIRY = b"anabranch.bin_expiry"
_BLOBS = b"anabranch.blobs"
_PIECE = b"anabranch.piece"

Create = Callable[[Path, pa.Buffer], None]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """An open run. Its rows lie in the mapped file for as long as anything refers to them.

    Numbers by bin are those of the whole run, also where only some of its bins are here.
    """

    info: RunInfo
    bins: int
    rows: SortedRows
    bin_rows: Index
    bin_bytes: Index
    expiry: Histogram | None = None
    #: the bins whose rows are here, of a run that lies in pieces; None: all are
    here: Mask | None = None

    def select(self, chosen: Mask) -> Iterator[pa.RecordBatch]:
        """The rows of these bins in order, without a copy, neighbouring bins together."""
        rows = self.bin_rows if self.here is None else np.where(self.here, self.bin_rows, 0)
        edges = np.concatenate(([0], np.cumsum(rows)))
        padded = np.concatenate(([False], chosen, [False]))
        changes = np.flatnonzero(padded[1:] != padded[:-1])
        for first, last in changes.reshape(-1, 2).tolist():
            yield from self.rows.slice(int(edges[first]), int(edges[last]))


def write_run(
    root: Path,
    name: str,
    operator: str,
    layout: Layout,
    batches: Sequence[pa.RecordBatch],
    bins: int,
    *,
    create: Create | None = None,
) -> RunInfo:
    """Write rows as a new run and make it durable; the name must be free.

    The batches together are sorted by (hash, key, sub-key) without duplicates, and each begins
    with a new bin. ``create`` is how the file is made, ``create_bulk`` unless told otherwise.
    """
    blobs = _blobs(layout, batches, bins) if layout.blobs else ()
    data, rows = _encode(layout, batches, bins, blobs)
    info = RunInfo(name, operator, rows, data.size, checksum_of(data), blobs=blobs)
    if create is None:
        create_bulk(root / name, data, within=root)
    else:
        create(root / name, data)
    return info


def checksum_of(data: pa.Buffer) -> str:
    """The CRC-32 of some bytes as eight hexadecimal digits."""
    return format(zlib.crc32(data), "08x")


def open_run(root: Path, info: RunInfo) -> Run:
    """Map a run, after making sure that it is the one that was committed.

    Open runs are kept for the process: a name never changes its content.
    """
    path = root / info.name
    run = _open.get((path, info))
    if run is None:
        run = _load(path, info)
        _open.keep((path, info), run)
    return run


def forget_runs() -> None:
    """Let go of all open runs, as a new process would."""
    _open.clear()


def _is_there(key: tuple[Path, RunInfo]) -> bool:
    return os.path.exists(key[0])


_open: KeptOpen[tuple[Path, RunInfo], Run] = KeptOpen(CACHED_RUNS, _is_there)


def _load(path: Path, info: RunInfo) -> Run:
    if info.format > FORMAT:
        raise _future(path, info.format)
    data = mapped(path, info.bytes, info.checksum, "run")
    run, _ = _decode(path, info, data)
    if not len(run.rows) == int(run.bin_rows.sum()) == info.rows or len(run.bin_rows) != run.bins:
        raise corrupt(path, "run", f"it has {len(run.rows)} rows, not {info.rows}")
    return run


def _decode(path: Path, info: RunInfo, data: pa.Buffer) -> tuple[Run, dict[bytes, bytes]]:
    try:
        reader = pa.ipc.open_file(data)
        metadata = reader.schema.metadata or {}
        if int(metadata[_FORMAT]) > FORMAT:
            raise _future(path, int(metadata[_FORMAT]))
        bins = int(metadata[_BINS])
        schema = reader.schema.remove_metadata()
        batches = [
            reader.get_batch(number).replace_schema_metadata(None)
            for number in range(reader.num_record_batches)
        ]
        rows = SortedRows(schema, batches, data)
        bin_rows, bin_bytes = _unpacked(metadata[_ROWS]), _unpacked(metadata[_BYTES])
        run = Run(info, bins, rows, bin_rows, bin_bytes, _histogram(metadata, bins))
    except (pa.ArrowException, KeyError, ValueError, zlib.error) as error:
        raise corrupt(path, "run", f"it is not a run ({error})") from error
    return run, dict(metadata)


def mapped(path: Path | str, size: int, checksum: str, what: str) -> pa.Buffer:
    """The bytes of a run or a blob, after making sure that they are those that were committed."""
    with store_errors(path, f"read the {what}"):
        try:
            disk().reading(path)
            found = os.stat(path).st_size
            if found != size:
                raise corrupt(path, what, f"it has {found} bytes, not {size}")
            # The buffer keeps the mapping alive; the descriptor is not needed any more.
            with pa.memory_map(str(path)) as file:
                data = file.read_buffer()
        except FileNotFoundError as error:
            raise _missing(path, what) from error
    if checksum_of(data) != checksum:
        raise corrupt(path, what, "its checksum is not the one that was committed")
    return data


def _missing(path: Path | str, what: str) -> StoreError:
    return MissingRun(
        f"A {what} that a commit names is not in the store",
        where=str(path),
        do="Restore the file from a copy of the store, or open an older checkpoint.",
    )


def corrupt(path: Path | str, what: str, why: str) -> StoreError:
    """The error for a run or a blob that is not what was committed."""
    return CorruptRun(
        f"A {what} is damaged: {why}",
        where=str(path),
        do="Restore the file from a copy of the store, or open an older checkpoint.",
    )


def _future(path: Path, found: int) -> FutureFormat:
    return FutureFormat(
        f"A run has format {found}; this version reads up to {FORMAT}",
        where=str(path),
        do="Use the version of Anabranch that wrote it, or a newer one.",
    )


def _blobs(layout: Layout, batches: Sequence[pa.RecordBatch], bins: int) -> tuple[BlobInfo, ...]:
    """The blobs that rows are kept in."""
    found = []
    for batch in batches:
        rows = blob_rows(layout, batch)
        kept = rows.column(layout.blob_column).to_pylist()
        numbers = bin_of(hash_column(rows), bins).tolist()
        found += [BlobInfo(**blob, bin=number) for blob, number in zip(kept, numbers, strict=True)]
    return tuple(found)


def blob_rows(layout: Layout, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows whose values are in a blob."""
    return batch.filter(batch.column(layout.blob_column).is_valid())


def _encode(
    layout: Layout, batches: Sequence[pa.RecordBatch], bins: int, blobs: tuple[BlobInfo, ...]
) -> tuple[pa.Buffer, int]:
    """The bytes of a run and the number of its rows."""
    _check_order(batches, bins)
    offsets = [bin_offsets(hash_column(batch), bins) for batch in batches]
    sizes = [bytes_between(batch, at) for batch, at in zip(batches, offsets, strict=True)]
    none = np.zeros(bins, dtype=np.int64)
    bin_rows = sum((np.diff(at) for at in offsets), start=none)
    histogram = histogram_of(layout, batches, bins) if layout.expires else None
    metadata = _metadata(bins, bin_rows, sum(sizes, start=none), histogram, blobs)
    parts = [
        batch.slice(start, stop - start)
        for batch, at, size in zip(batches, offsets, sizes, strict=True)
        for start, stop in _cuts(at, size)
    ]
    return _file_of(layout.schema.with_metadata(metadata), parts), int(bin_rows.sum())


def _file_of(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """The bytes of an Arrow IPC file.

    They are counted first: a buffer that grows is copied each time, which takes longer.
    """
    counted = pa.MockOutputStream()
    _write_batches(counted, schema, batches)
    data = pa.allocate_buffer(counted.size())
    with pa.FixedSizeBufferWriter(data) as sink:
        _write_batches(sink, schema, batches)
    return data


def _write_batches(
    sink: pa.NativeFile, schema: pa.Schema, batches: Sequence[pa.RecordBatch]
) -> None:
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _metadata(
    bins: int,
    bin_rows: Index,
    bin_bytes: Index,
    histogram: Histogram | None,
    blobs: tuple[BlobInfo, ...],
) -> dict[bytes, bytes]:
    found = {
        _FORMAT: str(FORMAT).encode(),
        _BINS: str(bins).encode(),
        _ROWS: _packed(bin_rows),
        _BYTES: _packed(bin_bytes),
    }
    if histogram is not None:
        found[_EDGES] = _packed(histogram.edges)
        found[_EXPIRY] = _packed(histogram.counts)
    if blobs:
        found[_BLOBS] = msgspec.json.encode(blobs)
    return found


def encode_piece(run: Run, chosen: BinSet) -> pa.Buffer:
    """Some bins of a run as a file of their own, which says of the others what the run says."""
    metadata = _metadata(run.bins, run.bin_rows, run.bin_bytes, run.expiry, run.info.blobs)
    metadata[_PIECE] = chosen.hex.encode()
    batches = list(_gathered(run.select(chosen.mask(run.bins))))
    return _file_of(run.rows.schema.with_metadata(metadata), batches)


def _gathered(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of about ``BATCH_BYTES``: a look-up goes through all batches of a run."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for part in parts:
        if waiting and held + part.nbytes > BATCH_BYTES:
            yield pa.concat_batches(waiting)
            waiting, held = [], 0
        waiting.append(part)
        held += part.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def load_piece(path: Path, info: RunInfo, size: int, checksum: str) -> Run:
    """Some bins of a run, mapped, after making sure that the file is whole."""
    data = mapped(path, size, checksum, "piece of a run")
    run, metadata = _decode(path, info, data)
    here = BinSet(metadata[_PIECE].decode()).mask(run.bins)
    return replace(run, here=here)


def _check_order(batches: Sequence[pa.RecordBatch], bins: int) -> None:
    """Refuse what look-ups could not find again."""
    last = -1
    for batch in batches:
        hashes = hash_column(batch)
        if not len(hashes):
            continue
        first, end = bin_of(hashes[[0, -1]], bins).tolist()
        if first <= last or np.any(hashes[1:] < hashes[:-1]):
            raise ValueError("the rows of a run must be sorted, each batch with bins of its own")
        last = end


def _cuts(offsets: Index, sizes: Index) -> Iterator[tuple[int, int]]:
    """Row ranges of record batches: whole bins, several only as long as they fit together."""
    start, held = 0, 0
    for number in np.flatnonzero(sizes).tolist():
        if held and held + sizes[number] > BATCH_BYTES:
            yield start, int(offsets[number])
            start, held = int(offsets[number]), 0
        held += int(sizes[number])
    if held:
        yield start, int(offsets[-1])


def _histogram(metadata: Mapping[bytes, bytes], bins: int) -> Histogram | None:
    if _EDGES not in metadata:
        return None
    edges = _unpacked(metadata[_EDGES])
    return Histogram(edges, _unpacked(metadata[_EXPIRY]).reshape(bins, len(edges)))


def _packed(numbers: Index) -> bytes:
    """Numbers as little-endian 64-bit integers, deflated: most bins of a small run are empty."""
    return zlib.compress(numbers.astype("<i8").tobytes(), 1)


def _unpacked(data: bytes) -> Index:
    return np.frombuffer(zlib.decompress(data), dtype="<i8").astype(np.int64)
