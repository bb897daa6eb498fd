"""Blobs: the values of one row, too large for a run, in a file of their own.

Operations
    ``write_blobs`` makes a file for each row above ``BLOB_BYTES``; what it returns, name, bytes and
    checksum, stands in the row. ``with_blobs`` puts the values back.

Guarantees
    A blob is written once, durably, before the run that names it, under a name of the same
    attempt. Merging copies what the row says of it and neither reads nor writes it. A run says
    which blobs its rows have, so that a blob stays as long as a run is listed for its bin. Reading
    compares size and checksum.

Non-guarantees
    Blobs are read whole. The values of one look-up together must stay below 2 GiB per text or
    binary column.

Failure
    ``MissingRun`` and ``CorruptRun``, naming the file.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from anabranch.records.bins import Mask
from anabranch.records.layout import BLOB_TYPE
from anabranch.runs.keys import Index
from anabranch.runs.run_file import Create, corrupt_run
from anabranch.runs.sorted_rows import concat_rows
from anabranch.runs.state_files import StateFiles
from anabranch.store.checksums import crc_of

BLOB_BYTES = 1 << 20


def large_rows(values: pa.RecordBatch) -> list[int]:
    """The rows that take more than ``BLOB_BYTES``, ascending; found by halves."""
    found, ranges = [], [(0, values.num_rows)]
    while ranges:
        start, stop = ranges.pop()
        if start == stop or values.slice(start, stop - start).nbytes <= BLOB_BYTES:
            continue
        if stop - start == 1:
            found.append(start)
            continue
        middle = (start + stop) // 2
        ranges += [(start, middle), (middle, stop)]
    return sorted(found)


def write_blobs(
    root: Path,
    name: str,
    values: pa.RecordBatch,
    forgotten: Mask,
    create: Create,
) -> pa.Array | None:
    """Write the large rows among those not forgotten; where each is kept, NULL for the others.

    None if there are none. The files are named after the run, ``name``.
    """
    kept: list[dict[str, object] | None] = [None] * values.num_rows
    large = [row for row in large_rows(values) if not forgotten[row]]
    for number, row in enumerate(large):
        data = _encode(values.slice(row, 1))
        blob = f"{name}-{number}.blob"
        create(root / blob, data)
        kept[row] = {"name": blob, "bytes": data.size, "checksum": crc_of(data)}
    return pa.array(kept, BLOB_TYPE) if large else None


def with_blobs(files: StateFiles, values: pa.RecordBatch, blob: pa.Array) -> pa.RecordBatch:
    """The values with those of the rows that have a blob read from it."""
    places: Index = blob.is_valid().to_numpy(zero_copy_only=False).nonzero()[0]
    pieces, done = [], 0
    for place in places.tolist():
        if place > done:
            pieces.append(values.slice(done, place - done))
        pieces.append(_read(files, blob[place].as_py(), values.schema))
        done = place + 1
    if done < values.num_rows:
        pieces.append(values.slice(done))
    return concat_rows(values.schema, pieces)


def _encode(row: pa.RecordBatch) -> pa.Buffer:
    """One row as an Arrow file, copied once: the buffer has the right size from the start.

    It goes back to the system when it is let go; Arrow's own pools would keep it.
    """
    counted = pa.MockOutputStream()
    _write(counted, row)
    buffer = pa.allocate_buffer(counted.size(), memory_pool=pa.system_memory_pool())
    _write(pa.FixedSizeBufferWriter(buffer), row)
    return buffer


def _write(sink: pa.NativeFile, row: pa.RecordBatch) -> None:
    with pa.ipc.new_file(sink, row.schema) as writer:
        writer.write_batch(row)


def _read(files: StateFiles, kept: dict[str, object], schema: pa.Schema) -> pa.RecordBatch:
    path = files.root / str(kept["name"])
    data = files.blob(str(kept["name"]), int(str(kept["bytes"])), str(kept["checksum"]))
    try:
        row = pa.ipc.open_file(data).get_batch(0)
    except pa.ArrowException as error:
        raise corrupt_run(path, "blob", f"it is not one ({error})") from error
    if row.schema.types != schema.types or row.num_rows != 1:
        raise corrupt_run(path, "blob", "it holds other columns")
    return pa.RecordBatch.from_arrays(row.columns, schema=schema)
