"""Rows as Parquet files whose types Spark reads as they were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import PublishFailed
from anabranch.protocol.sinks import SinkContext
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.staging import read_staged


def encode_parquet(table: pa.Table) -> pa.Buffer:
    """Give the bytes of one file with these rows.

    Microsecond timestamps with a zone are adjusted to UTC (`timestamp`), those without are not
    (`timestamp_ntz`). Without dictionaries: building them cost more than half of the time, and
    the compression finds most repetitions all the same.
    """
    out = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(None),
        out,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        coerce_timestamps="us",
        store_schema=False,
    )
    return out.getvalue()


def staged_parquet(context: SinkContext, step: int, files: Sequence[StagedFile]) -> list[Path]:
    """Give the paths of a step's staged files for Spark to read under the sink's schema.

    Only if they hold what was committed and have these columns: Spark would read a column that is
    not there as NULL, and leave out one that it is not asked for.
    """
    for file in files:
        found = pq.read_schema(pa.BufferReader(read_staged(context.store, file))).names
        if found != context.schema.names:
            raise PublishFailed(
                f"Step {step} was staged for sink {context.sink!r} with the columns "
                f"{', '.join(found)}; now the sink has {', '.join(context.schema.names)}",
                where=str(context.store / file.name),
                do="The output stays staged. Run the dataflow as it was until the pipeline "
                "completes or is shut down; then change the columns.",
            )
    return [context.store / file.name for file in files]
