"""Rows as Parquet files whose types Spark reads as they were."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


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
