"""The column types: Spark's names and the Arrow types they map to."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

#: Field metadata: the collation of a string column. Without it, strings compare byte by byte.
COLLATION = b"collation"
#: Field metadata: the user's comment on a column.
COMMENT = b"comment"

#: The types without parameters, by the name that ``to_ddl`` writes.
SIMPLE: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
#: Other names that Spark accepts.
SYNONYMS: Mapping[str, str] = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
#: Type names of other systems, and what to use instead.
SUGGESTIONS: Mapping[str, str] = {
    "bool": "boolean",
    "str": "string",
    "text": "string",
    "char": "string",
    "character": "string",
    "varchar": "string",
    "bytes": "binary",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "datetime": "timestamp",
}
#: All types, for messages that say what to use.
KNOWN = ", ".join([*SIMPLE, "decimal(p,s)", "array<…>", "map<…,…>", "struct<…>"])
MAX_PRECISION = 38
