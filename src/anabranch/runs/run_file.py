"""Runs: immutable files of one operator's state rows, sorted by (hash, key, sub-key).

Operations
    ``write_run`` makes one under a name that is its own; ``open_run`` maps it, ``open_part`` some
    of its bins.

Guarantees
    A run is an Arrow IPC file whose schema metadata (repeated in the footer) has the format, the
    number of bins, each bin's rows and bytes and, where rows expire, how many of them do when,
    and the blobs that values are in.
    Record batches end where bins do: neighbouring bins share a batch up to 1 MiB, a larger bin has
    one of its own, so that a bin is one byte range. Opening compares size and checksum with what
    was committed; a run that opens is whole, and so are the bins of one that opens in part (see
    ``blocks``). Opening executes nothing that the file says: there
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

import numpy as np
import pyarrow as pa

from anabranch.errors import CorruptRun, FutureFormat, MissingRun, StoreError
from anabranch.records.bins import BinSet, Mask, bin_of, bin_offsets
from anabranch.records.layout import Layout
from anabranch.records.run_list import FORMAT, BlobInfo, RunInfo, Tail
from anabranch.runs.blocks import bins_in, blocks_told, blocks_with, is_whole
from anabranch.runs.expiry import Histogram, histogram_of
from anabranch.runs.keys import Index
from anabranch.runs.row_bytes import bytes_between
from anabranch.runs.run_metadata import RunMetadata, format_of
from anabranch.runs.sorted_rows import SortedRows, hash_column
from anabranch.store.checksums import checksum_of, has_checksum
from anabranch.store.disk import disk
from anabranch.store.files import create_bulk, store_errors
from anabranch.store.open_files import OpenFileCache

BATCH_BYTES = 1 << 20
CACHED_RUNS = 512
"""How many runs a process keeps open, the last ones used."""

_PIECE = b"anabranch.piece"

Create = Callable[[Path, pa.Buffer], None]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """An open run. Its rows lie in the mapped file for as long as anything refers to them.

    Numbers by bin are those of the whole run, also where only some of its bins are here.
    """

    info: RunInfo
    rows: SortedRows
    bin_rows: Index
    bin_bytes: Index
    expiry: Histogram | None = None
    #: the bins whose rows are here, of a run that lies in pieces; None: all are
    here: Mask | None = None

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return len(self.bin_rows)

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
    data, rows, tail = _encode(layout, batches, bins, blobs)
    info = RunInfo(name, operator, rows, data.size, checksum_of(data), blobs=blobs, tail=tail)
    if create is None:
        create_bulk(root / name, data, within=root)
    else:
        create(root / name, data)
    return info


def open_run(root: Path, info: RunInfo) -> Run:
    """Map a run, after making sure that it is the one that was committed.

    Open runs are kept for the process: a name never changes its content.
    """
    path = root / info.name
    run = _open.get((path, info))
    if run is None:
        run = _load(path, info)
        _open.put((path, info), run)
    return run


def open_part(root: Path, info: RunInfo, bins: BinSet) -> Run:
    """Map some bins of a run, after making sure that these are the ones that were committed.

    Of a large run only the batches that they are in are read; nothing is kept open. A run that is
    small, or open as a whole, is given as a whole. It is for copying: searches in it are slow.
    """
    path = root / info.name
    run = _open.get((path, info))
    if run is not None:
        return run
    if info.tail is None:
        return _load(path, info, searched=False)
    _check_format(path, info)
    data = _mapped(path, info.bytes, "run")
    if not has_checksum(data[data.size - info.tail.bytes :], info.tail.checksum):
        raise corrupt_run(path, "run", "its end is not the one that was committed")
    part, _ = _decode(path, info, data, bins, searched=False)
    return part


def forget_runs() -> None:
    """Let go of all open runs, as a new process would."""
    _open.clear()


def _is_there(key: tuple[Path, RunInfo]) -> bool:
    return os.path.exists(key[0])


_open: OpenFileCache[tuple[Path, RunInfo], Run] = OpenFileCache(CACHED_RUNS, _is_there)


def _load(path: Path, info: RunInfo, *, searched: bool = True) -> Run:
    _check_format(path, info)
    data = mapped(path, info.bytes, info.checksum, "run")
    run, _ = _decode(path, info, data, searched=searched)
    if not len(run.rows) == int(run.bin_rows.sum()) == info.rows:
        raise corrupt_run(path, "run", f"it has {len(run.rows)} rows, not {info.rows}")
    return run


def _check_format(path: Path, info: RunInfo) -> None:
    if info.format > FORMAT:
        raise _future(path, info.format)


def _decode(
    path: Path,
    info: RunInfo,
    data: pa.Buffer,
    part: BinSet | None = None,
    *,
    searched: bool = True,
) -> tuple[Run, dict[bytes, bytes]]:
    """A run and its metadata; only the rows of a part of its bins, where one is asked for.

    One that is not ``searched`` is spared what makes searches in it fast.
    """
    try:
        reader = pa.ipc.open_file(data)
        metadata = reader.schema.metadata or {}
        if format_of(metadata) > FORMAT:
            raise _future(path, format_of(metadata))
        told = RunMetadata.decode(metadata)
        if part is None:
            batches = [reader.get_batch(n) for n in range(reader.num_record_batches)]
            here = None
        else:
            numbers = blocks_with(metadata, told.bin_rows, part)
            batches = [_checked(path, reader, metadata, n) for n in numbers.tolist()]
            here = bins_in(metadata, told.bin_rows, numbers)
        schema = reader.schema.remove_metadata()
        plain = [batch.replace_schema_metadata(None) for batch in batches]
        rows = SortedRows(schema, plain, data if searched else None)
        run = Run(info, rows, told.bin_rows, told.bin_bytes, told.expiry, here)
    except (pa.ArrowException, KeyError, ValueError, zlib.error) as error:
        raise corrupt_run(path, "run", f"it is not a run ({error})") from error
    return run, dict(metadata)


def _checked(
    path: Path, reader: pa.RecordBatchFileReader, metadata: Mapping[bytes, bytes], number: int
) -> pa.RecordBatch:
    batch = reader.get_batch(number)
    if not is_whole(metadata, number, batch):
        raise corrupt_run(path, "run", f"its batch {number} is not the one that was committed")
    return batch


def mapped(path: Path | str, size: int, checksum: str, what: str) -> pa.Buffer:
    """The bytes of a run or a blob, after making sure that they are those that were committed."""
    data = _mapped(path, size, what)
    if not has_checksum(data, checksum):
        raise corrupt_run(path, what, "its checksum is not the one that was committed")
    return data


def _mapped(path: Path | str, size: int, what: str) -> pa.Buffer:
    """The bytes of a file of this size; they are not looked at."""
    with store_errors(path, f"read the {what}"):
        try:
            disk().before_read(path)
            found = os.stat(path).st_size
            if found != size:
                raise corrupt_run(path, what, f"it has {found} bytes, not {size}")
            # The buffer keeps the mapping alive; the descriptor is not needed any more.
            with pa.memory_map(str(path)) as file:
                return file.read_buffer()
        except FileNotFoundError as error:
            raise _missing(path, what) from error


def _missing(path: Path | str, what: str) -> StoreError:
    return MissingRun(
        f"A {what} that a commit names is not in the store",
        where=str(path),
        do="Restore the file from a copy of the store, or open an older checkpoint.",
    )


def corrupt_run(path: Path | str, what: str, why: str) -> StoreError:
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
) -> tuple[pa.Buffer, int, Tail | None]:
    """The bytes of a run, the number of its rows, and the end of a run of several batches."""
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
    blocks = blocks_told(parts)
    data, end = _file_of(layout.schema.with_metadata(metadata | blocks), parts)
    tail = Tail(data.size - end, checksum_of(data[end:])) if blocks else None
    return data, int(bin_rows.sum()), tail


def _file_of(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> tuple[pa.Buffer, int]:
    """The bytes of an Arrow IPC file, and where its batches end.

    They are counted first: a buffer that grows is copied each time, which takes longer.
    """
    counted = pa.MockOutputStream()
    _write_batches(counted, schema, batches)
    data = pa.allocate_buffer(counted.size())
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
    """Some bins of a run as a file of their own, which says of the others what the run says."""
    told = RunMetadata(run.bin_rows, run.bin_bytes, run.expiry)
    metadata = told.encode(run.info.blobs)
    metadata[_PIECE] = chosen.hex.encode()
    batches = list(_gathered(run.select(chosen.mask(run.bins))))
    data, _ = _file_of(run.rows.schema.with_metadata(metadata), batches)
    return data


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


def load_piece(path: Path, info: RunInfo, size: int, checksum: str, *, searched: bool) -> Run:
    """Some bins of a run, mapped, after making sure that the file is whole.

    One that is to be joined with others is not ``searched`` by itself.
    """
    data = mapped(path, size, checksum, "piece of a run")
    run, metadata = _decode(path, info, data, searched=searched)
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
