"""Which columns a file format can hold so that Spark reads the same type back."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

_PLAIN = (
    types.is_boolean,
    types.is_signed_integer,
    types.is_float32,
    types.is_float64,
    types.is_decimal128,
    types.is_string,
    types.is_large_string,
    types.is_binary,
    types.is_large_binary,
    types.is_date32,
    lambda kind: types.is_timestamp(kind) and kind.unit == "us",
)


def refused_columns(schema: pa.Schema, *, text_keys: bool) -> str | None:
    """Say what in a schema cannot be written to a file and what to do; ``None`` if all can.

    ``text_keys`` says that the keys of maps must be strings, as in JSON.
    """
    problems = [_duplicate(schema.names, "")]
    problems += [_refused(field.type, field.name, text_keys) for field in schema]
    return "; ".join(problem for problem in problems if problem) or None


def refused_partitions(schema: pa.Schema, form: str, partition_by: Sequence[str]) -> str | None:
    """Say why rows cannot be written in a format below directories named after these columns.

    What only Spark knows of its formats is found out when the sink is opened.
    """
    columns = {field.name.lower(): field for field in schema}
    names = [name.lower() for name in partition_by]
    problems = [_refused_partition(columns.get(name.lower()), name) for name in partition_by]
    if len(set(names)) < len(names):
        problems.append("partition_by has a column twice")
    rest = [field for name, field in columns.items() if name not in names]
    if not rest:
        problems.append("partition_by leaves no column for the files: leave one out of it")
    problems += [_refused_in(form, field) for field in rest]
    if form == "text" and len(rest) > 1:
        problems.append("text files have one column: select a single string")
    return "; ".join(problem for problem in problems if problem) or None


def _refused_partition(field: pa.Field | None, name: str) -> str | None:
    if field is None:
        return f"partition_by names {name!r}, which is not a column: name one that there is"
    if types.is_nested(field.type) or types.is_binary(field.type):
        return f"column {name!r} has type {field.type}, which cannot be a directory: cast it"
    if name.startswith("."):
        return f"Spark overlooks directories such as {name}=…: rename column {name!r}"
    return None


def _refused_in(form: str, field: pa.Field) -> str | None:
    if form == "csv" and types.is_nested(field.type):
        return f"column {field.name!r} has type {field.type}, which CSV cannot hold: cast it"
    if form == "text" and not types.is_string(field.type):
        return f"column {field.name!r} has type {field.type}, and text files hold strings: cast it"
    return None


def _refused(kind: pa.DataType, name: str, text_keys: bool) -> str | None:
    """Say what is wrong with a type, naming the place in the column where it stands."""
    if types.is_struct(kind):
        return _refused_struct(kind, name, text_keys)
    if types.is_list(kind) or types.is_large_list(kind):
        return _refused(kind.value_type, f"{name}.element", text_keys)
    if types.is_map(kind):
        return _refused_map(kind, name, text_keys)
    if any(is_kind(kind) for is_kind in _PLAIN):
        return None
    return f"column {name!r} has type {kind}, which files cannot hold: cast it or leave it out"


def _refused_map(kind: pa.MapType, name: str, text_keys: bool) -> str | None:
    if text_keys and not types.is_string(kind.key_type):
        return f"map {name!r} has keys of type {kind.key_type}: cast its keys to string"
    key = _refused(kind.key_type, f"{name}.key", text_keys)
    return key or _refused(kind.item_type, f"{name}.value", text_keys)


def _refused_struct(kind: pa.StructType, name: str, text_keys: bool) -> str | None:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if not fields:
        return f"struct {name!r} has no fields: leave it out"
    problems = [_duplicate([field.name for field in fields], f"{name}.")]
    problems += [_refused(field.type, f"{name}.{field.name}", text_keys) for field in fields]
    return "; ".join(problem for problem in problems if problem) or None


def _duplicate(names: Sequence[str], prefix: str) -> str | None:
    # Spark resolves names without regard to case.
    lower = [name.lower() for name in names]
    twice = sorted({name for name in names if lower.count(name.lower()) > 1})
    if not twice:
        return None
    listed = ", ".join(repr(prefix + name) for name in twice)
    return f"column names that Spark cannot tell apart: {listed}: rename them"
