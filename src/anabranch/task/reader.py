"""Reading in a task: rows of a partition, each with its position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import ReadFailed
from anabranch.protocol.sources import OWN_TIME, POSITION

Positions = npt.NDArray[np.int64]


def with_positions(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, first: int = 0, past: int | None = None
) -> Iterator[tuple[pa.RecordBatch, Positions]]:
    """Batches with the schema's columns, and where their rows stand: as they say, or counted.

    Times that the source tells beside them stay in a last column, ``OWN_TIME``. Raises
    ``ReadFailed`` for positions that do not ascend from ``first`` on, or reach ``past``.
    """
    following = first
    for batch in batches:
        if POSITION in batch.schema.names and POSITION not in schema.names:
            own = [OWN_TIME] if has_own_times(batch, schema) else []
            positions = _own_positions(batch.column(POSITION))
            rows = batch.select([*schema.names, *own])
        else:
            positions = np.arange(following, following + batch.num_rows, dtype=np.int64)
            rows = batch
        if len(positions):
            ascending = positions[0] >= following and bool((np.diff(positions) > 0).all())
            if not ascending or (past is not None and positions[-1] >= past):
                raise ReadFailed(
                    f"Rows stand at {positions[0]} to {positions[-1]}, where they have to ascend "
                    f"from {following} on" + ("" if past is None else f" and stay below {past}"),
                    do="Let the source give rows in the order of their positions, each once.",
                )
            following = int(positions[-1]) + 1
        yield rows, positions


def _own_positions(column: pa.Array) -> Positions:
    if not pa.types.is_integer(column.type) or column.null_count:
        raise ReadFailed(f"Column {POSITION!r} has to be integers without NULLs: {column.type}")
    found: Positions = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def has_own_times(batch: pa.RecordBatch, schema: pa.Schema) -> bool:
    """Whether a batch has times beside the schema's columns."""
    return OWN_TIME in batch.schema.names and OWN_TIME not in schema.names


def without_own_times(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the schema's columns alone."""
    return batch.select(schema.names) if has_own_times(batch, schema) else batch
