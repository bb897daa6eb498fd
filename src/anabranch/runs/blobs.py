"""Blobs: files that each hold the values of one row that is too large for a run.

A row above ``BLOB_BYTES`` keeps the name, bytes and checksum of a blob in place of its values.

Guarantees
    A blob is written once, durably, before the run that refers to it, under a name of the same
    attempt. Merging copies the reference and neither reads nor writes the blob. A run lists the
    blobs of its rows, so a blob stays as long as a run is listed for its bin. Reading compares size
    and checksum.

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
from anabranch.runs.run_file import Create, corrupt_run, encode_file
from anabranch.runs.sorted_rows import concat_rows
from anabranch.runs.state_files import StateFiles
from anabranch.store.checksums import crc_of

BLOB_BYTES = 1 << 20


def large_rows(values: pa.RecordBatch) -> list[int]:
    """The rows that take more than ``BLOB_BYTES``, ascending, found by bisection."""
    large, ranges = [], [(0, values.num_rows)]
    while ranges:
        start, stop = ranges.pop()
        if start == stop or values.slice(start, stop - start).nbytes <= BLOB_BYTES:
            continue
        if stop - start == 1:
            large.append(start)
            continue
        middle = (start + stop) // 2
        ranges += [(start, middle), (middle, stop)]
    return sorted(large)


def write_blobs(
    root: Path, name: str, values: pa.RecordBatch, forgotten: Mask, create: Create
) -> pa.Array | None:
    """Write the large rows that are not forgotten; return the blob of each row, NULL for none.

    Returns None if no row is large. The files are named after the run, ``name``.
    """
    blobs: list[dict[str, object] | None] = [None] * values.num_rows
    large = [row for row in large_rows(values) if not forgotten[row]]
    for number, row in enumerate(large):
        # This pool's memory returns to the system when it is freed; Arrow's own would keep it.
        data, _ = encode_file(values.schema, [values.slice(row, 1)], pa.system_memory_pool())
        blob = f"{name}-{number}.blob"
        create(root / blob, data)
        blobs[row] = {"name": blob, "bytes": data.size, "checksum": crc_of(data)}
    return pa.array(blobs, BLOB_TYPE) if large else None


def read_blobs(files: StateFiles, values: pa.RecordBatch, blob: pa.Array) -> pa.RecordBatch:
    """The values, with those of rows that have a blob read from it."""
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


def _read(files: StateFiles, blob: dict[str, object], schema: pa.Schema) -> pa.RecordBatch:
    path = files.root / str(blob["name"])
    data = files.blob(str(blob["name"]), int(str(blob["bytes"])), str(blob["checksum"]))
    try:
        row = pa.ipc.open_file(data).get_batch(0)
    except pa.ArrowException as error:
        raise corrupt_run(path, "blob", f"it is not an Arrow file ({error})") from error
    if row.schema.types != schema.types or row.num_rows != 1:
        raise corrupt_run(path, "blob", "it has other columns")
    return pa.RecordBatch.from_arrays(row.columns, schema=schema)
