"""Runs: immutable files of one operator's state rows, sorted by (hash, key, sub-key).

Guarantees
    A run is an Arrow IPC file whose schema metadata (repeated in the footer) has the format, the
    number of bins, the rows and bytes of each bin, the run's blobs and, if rows expire, how many
    expire when. Record batches end where bins do: neighbouring bins share a batch of up to 1 MiB,
    and a larger bin has its own, so a bin is one byte range. Opening compares size and checksum
    with the commit, so a run that opens is whole, and so are the bins of one that opens in part
    (see ``blocks``). Opening runs no code from the file: there is no pickle in it.

Non-guarantees
    Changes to an open file go unnoticed; runs are write-once. The rows of a bin must stay below
    2 GiB per text or binary column.

Failure
    ``MissingRun``, ``CorruptRun``, ``FutureFormat``, each naming the file.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.errors import CorruptRun, FutureFormat, MissingRun
from anabranch.records.bins import BinSet, Mask, bin_of, bin_offsets
from anabranch.records.layout import Layout
from anabranch.records.run_list import FORMAT, BlobInfo, RunInfo, Tail
from anabranch.runs.blocks import bins_of_blocks, block_metadata, blocks_of_bins, is_whole
from anabranch.runs.expiry import Histogram, histogram_of
from anabranch.runs.keys import Index
from anabranch.runs.row_bytes import bytes_between
from anabranch.runs.run_metadata import FORMAT_KEY, RunMetadata
from anabranch.runs.sorted_rows import SortedRows, hash_column
from anabranch.store.checksums import checksum_of, has_checksum
from anabranch.store.disk import disk
from anabranch.store.files import create_bulk, map_file, store_errors
from anabranch.store.open_files import OpenFileCache

BATCH_BYTES = 1 << 20
CACHED_RUNS = 512
"""How many of the last runs it used a process keeps open."""

_PIECE = b"anabranch.piece"
_RESTORE = "Restore the file from a copy of the store, or open an older checkpoint."

Create = Callable[[Path, pa.Buffer], None]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """An open run. Its rows lie in the mapped file for as long as anything refers to them.

    Numbers by bin are those of the whole run, even if only some of its bins are here.
    """

    info: RunInfo
    rows: SortedRows
    bin_rows: Index
    bin_bytes: Index
    expiry: Histogram | None = None
    #: The bins whose rows are here, if the run is open in part; None for all.
    here: Mask | None = None

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.bin_rows)

    @property
    def edges(self) -> Index:
        """Where the rows of each bin begin; one more entry says where the last ends."""
        rows = self.bin_rows if self.here is None else np.where(self.here, self.bin_rows, 0)
        return np.concatenate(([0], np.cumsum(rows)))

    def select(self, chosen: Mask) -> Iterator[pa.RecordBatch]:
        """The rows of the chosen bins in order, neighbouring bins together, without a copy."""
        edges = self.edges
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
    """Write rows as a new, durable run; the name must be free.

    The batches together must be sorted by (hash, key, sub-key) without duplicates, and each must
    begin with a new bin. If the layout has it, they have their due order: see ``with_due_order``.
    ``create`` creates the file, by default ``create_bulk``.
    """
    blobs = _blobs(layout, batches, bins) if layout.blobs else ()
    data, rows, tail = _encode(layout, batches, bins, blobs)
    info = RunInfo(name, operator, rows, data.size, checksum_of(data), blobs=blobs, tail=tail)
    (create or partial(create_bulk, within=root))(root / name, data)
    return info


def open_run(root: Path, info: RunInfo) -> Run:
    """Map a run and verify that it is the committed one.

    Runs stay open in the process: the content of a name never changes.
    """
    path = root / info.name
    run = _open.get((path, info))
    if run is None:
        run = _load(path, info)
        _open.put((path, info), run)
    return run


def open_part(root: Path, info: RunInfo, bins: BinSet) -> Run:
    """Map some bins of a run and verify that they are the committed ones.

    Only the batches with these bins are read, and nothing stays open. A small run, or one that is
    open already, is returned whole. Use it for copying: searches in the result are slow.
    """
    path = root / info.name
    run = _open.get((path, info))
    if run is not None:
        return run
    if info.tail is None:
        return _load(path, info, searched=False)
    _check_format(path, info.format)
    data = _map(path, info.bytes, "run")
    if not has_checksum(data[data.size - info.tail.bytes :], info.tail.checksum):
        raise corrupt_run(path, "run", "its metadata is not what was committed")
    part, _ = _decode(path, info, data, bins, searched=False)
    return part


def forget_runs() -> None:
    """Close all cached runs, as if the process were new."""
    _open.clear()


_open: OpenFileCache[tuple[Path, RunInfo], Run] = OpenFileCache(
    CACHED_RUNS, lambda key: os.path.exists(key[0])
)


def _load(path: Path, info: RunInfo, *, searched: bool = True) -> Run:
    _check_format(path, info.format)
    data = map_verified(path, info.bytes, info.checksum, "run")
    run, _ = _decode(path, info, data, searched=searched)
    if not len(run.rows) == int(run.bin_rows.sum()) == info.rows:
        raise corrupt_run(path, "run", f"it has {len(run.rows)} rows, not {info.rows}")
    return run


def _check_format(path: Path, found: int) -> None:
    if found > FORMAT:
        raise FutureFormat(
            f"A run has format {found}; this version reads up to {FORMAT}",
            where=str(path),
            do="Use the version of Anabranch that wrote it, or a newer one.",
        )


def _decode(
    path: Path, info: RunInfo, data: pa.Buffer, part: BinSet | None = None, *, searched: bool = True
) -> tuple[Run, dict[bytes, bytes]]:
    """Decode a run and its metadata, with the rows of all bins or of those in ``part``.

    Unless it is ``searched``, it skips the preparations that make searches fast.
    """
    try:
        reader = pa.ipc.open_file(data)
        metadata = reader.schema.metadata or {}
        _check_format(path, int(metadata[FORMAT_KEY]))
        decoded = RunMetadata.decode(metadata)
        if part is None:
            batches = [reader.get_batch(n) for n in range(reader.num_record_batches)]
            here = None
        else:
            numbers = blocks_of_bins(metadata, decoded.bin_rows, part)
            batches = [reader.get_batch(n) for n in numbers.tolist()]
            for number, batch in zip(numbers.tolist(), batches, strict=True):
                if not is_whole(metadata, number, batch):
                    why = f"its batch {number} is not what was committed"
                    raise corrupt_run(path, "run", why)
            here = bins_of_blocks(metadata, decoded.bin_rows, numbers)
        schema = reader.schema.remove_metadata()
        plain = [batch.replace_schema_metadata(None) for batch in batches]
        rows = SortedRows(schema, plain, data if searched else None)
        run = Run(info, rows, decoded.bin_rows, decoded.bin_bytes, decoded.expiry, here)
    except (pa.ArrowException, KeyError, ValueError, zlib.error) as error:
        raise corrupt_run(path, "run", f"it is not a run ({error})") from error
    return run, dict(metadata)


def map_verified(path: Path | str, size: int, checksum: str, what: str) -> pa.Buffer:
    """Map a run or a blob and verify that its bytes are the committed ones."""
    data = _map(path, size, what)
    if not has_checksum(data, checksum):
        raise corrupt_run(path, what, "its checksum is not the one that was committed")
    return data


def _map(path: Path | str, size: int, what: str) -> pa.Buffer:
    """Map a file of this size without reading its bytes."""
    with store_errors(path, f"read the {what}"):
        try:
            disk().before_read(path)
            found = os.stat(path).st_size
            if found != size:
                raise corrupt_run(path, what, f"it has {found} bytes, not {size}")
            return map_file(path, size)
        except FileNotFoundError as error:
            what = f"A {what} that a commit names is not in the store"
            raise MissingRun(what, where=str(path), do=_RESTORE) from error


def corrupt_run(path: Path | str, what: str, why: str) -> CorruptRun:
    """The error for a run or a blob that is not what was committed."""
    return CorruptRun(f"A {what} is damaged: {why}", where=str(path), do=_RESTORE)


def _blobs(layout: Layout, batches: Sequence[pa.RecordBatch], bins: int) -> tuple[BlobInfo, ...]:
    """The blobs of the rows."""
    infos = []
    for batch in batches:
        rows = blob_rows(layout, batch)
        blobs = rows.column(layout.blob_column).to_pylist()
        numbers = bin_of(hash_column(rows), bins).tolist()
        infos += [BlobInfo(**blob, bin=number) for blob, number in zip(blobs, numbers, strict=True)]
    return tuple(infos)


def blob_rows(layout: Layout, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that have a blob."""
    return batch.filter(batch.column(layout.blob_column).is_valid())


def _encode(
    layout: Layout, batches: Sequence[pa.RecordBatch], bins: int, blobs: tuple[BlobInfo, ...]
) -> tuple[pa.Buffer, int, Tail | None]:
    """Encode a run: its bytes, the number of its rows, and its tail if it has several batches."""
    _check_order(batches, bins)
    offsets = [bin_offsets(hash_column(batch), bins) for batch in batches]
    sizes = [bytes_between(batch, at) for batch, at in zip(batches, offsets, strict=True)]
    none = np.zeros(bins, dtype=np.int64)
    bin_rows = sum((np.diff(at) for at in offsets), start=none)
    histogram = histogram_of(layout, batches, bins) if layout.expires else None
    metadata = RunMetadata(bin_rows, sum(sizes, start=none), histogram).encode(blobs)
    parts = [
        batch.slice(start, stop - start)
        for batch, at, size in zip(batches, offsets, sizes, strict=True)
        for start, stop in _cuts(at, size)
    ]
    blocks = block_metadata(parts)
    data, end = encode_file(layout.schema.with_metadata(metadata | blocks), parts)
    tail = Tail(data.size - end, checksum_of(data[end:])) if blocks else None
    return data, int(bin_rows.sum()), tail


def encode_file(
    schema: pa.Schema, batches: Sequence[pa.RecordBatch], pool: pa.MemoryPool | None = None
) -> tuple[pa.Buffer, int]:
    """The bytes of an Arrow IPC file, and where its batches end.

    The bytes are counted first, because a growing buffer is copied each time it grows.
    """
    counted = pa.MockOutputStream()
    _write_batches(counted, schema, batches)
    data = pa.allocate_buffer(counted.size(), memory_pool=pool)
    with pa.FixedSizeBufferWriter(data) as sink:
        return data, _write_batches(sink, schema, batches)


def _write_batches(
    sink: pa.NativeFile, schema: pa.Schema, batches: Sequence[pa.RecordBatch]
) -> int:
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
        return int(sink.tell())


def encode_piece(run: Run, chosen: BinSet) -> pa.Buffer:
    """Encode some bins of a run as a file with the metadata of the whole run."""
    metadata = RunMetadata(run.bin_rows, run.bin_bytes, run.expiry).encode(run.info.blobs)
    metadata[_PIECE] = chosen.hex.encode()
    batches = list(_rebatch(run.select(chosen.mask(run.bins))))
    return encode_file(run.rows.schema.with_metadata(metadata), batches)[0]


def _rebatch(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join rows to batches of about ``BATCH_BYTES``: a look-up visits every batch of a run."""
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


def load_piece(path: Path, info: RunInfo, size: int, checksum: str, *, searched: bool) -> Run:
    """Map some bins of a run and verify the file.

    A piece that will be joined with others is not ``searched`` by itself.
    """
    data = map_verified(path, size, checksum, "piece of a run")
    run, metadata = _decode(path, info, data, searched=searched)
    here = BinSet(metadata[_PIECE].decode()).mask(run.bins)
    return replace(run, here=here)


def _check_order(batches: Sequence[pa.RecordBatch], bins: int) -> None:
    """Refuse rows that look-ups could not find."""
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
    """The row ranges of record batches: whole bins, several while they fit ``BATCH_BYTES``."""
    start, held = 0, 0
    for number in np.flatnonzero(sizes).tolist():
        if held and held + sizes[number] > BATCH_BYTES:
            yield start, int(offsets[number])
            start, held = int(offsets[number]), 0
        held += int(sizes[number])
    if held:
        yield start, int(offsets[-1])
