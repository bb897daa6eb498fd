"""What Python code returned, made into Arrow rows that fit a schema exactly, or refused.

Nothing is guessed and nothing is cut off: text does not become a number, 1.5 does not become 1,
and a number that leaves the range of its column is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from pyarrow import types

_FAMILIES = {
    "number": (types.is_integer, types.is_floating, types.is_decimal),
    "text": (types.is_string, types.is_large_string, types.is_string_view),
    "binary": (
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
    ),
    "time": (types.is_timestamp,),
    "list": (types.is_list, types.is_large_list, types.is_fixed_size_list),
    "struct": (types.is_struct,),
    "map": (types.is_map,),
}


def to_batch(data: object, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Make a batch of exactly `rows` rows from a table, a batch or a mapping of columns.

    A column may have another type of the same family where every value survives (`int64` for
    `int32`). Raises `ValueError` or `TypeError` naming the column.

    >>> import numpy as np
    >>> to_batch({"v": np.arange(2)}, pa.schema([("v", pa.int32())]), 2).column("v").to_pylist()
    [0, 1]
    """
    columns = _columns(data)
    missing = [name for name in schema.names if name not in columns]
    unknown = [str(name) for name in columns if name not in schema.names]
    if missing or unknown:
        problems = [f"has no column {name}" for name in missing]
        problems += [f"has a column {name} that is not in the schema" for name in unknown]
        raise ValueError(f"the result {' and '.join(problems)}")
    arrays = [source_column(columns[field.name], field) for field in schema]
    for field, array in zip(schema, arrays, strict=True):
        if len(array) != rows:
            raise ValueError(f"column {field.name} has {len(array)} rows instead of {rows}")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def source_column(values: object, field: pa.Field) -> pa.Array:
    """Make one column of values: an Arrow or NumPy array or any sequence of Python values."""
    try:
        array = _array(values, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"column {field.name} does not fit {field.type}: {error}") from error
    if array.null_count and not field.nullable:
        raise ValueError(f"column {field.name} has NULLs and the schema says not null")
    return array


def _columns(data: object) -> Mapping[str, object]:
    match data:
        case pa.Table() | pa.RecordBatch():
            return dict(zip(data.schema.names, data.columns, strict=True))
        case Mapping():
            return data
        case _:
            raise TypeError(
                "the result must be a pyarrow Table or RecordBatch or a mapping of column names "
                f"to arrays, not {type(data).__name__}"
            )


def _array(values: object, wanted: pa.DataType) -> pa.Array:
    match values:
        case pa.ChunkedArray():
            return _cast(pa.concat_arrays(values.chunks or [pa.array([], values.type)]), wanted)
        case pa.Array():
            return _cast(values, wanted)
        case np.ndarray() if values.dtype != object:
            return pa.array(values, type=wanted)
        case Iterable() if not isinstance(values, str | bytes | Mapping):
            return _from_python(list(values), wanted)
        case _:
            raise TypeError(f"a sequence of values is needed, not {type(values).__name__}")


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == wanted:
        return array
    # Arrow would also parse text as numbers and the like, which hides mistakes.
    if not types.is_null(array.type) and _family(array.type) != _family(wanted):
        raise TypeError(f"it is {array.type}")
    return array.cast(wanted)


def _family(type_: pa.DataType) -> str:
    families = (name for name, kinds in _FAMILIES.items() if any(is_(type_) for is_ in kinds))
    return next(families, str(type_))


def _from_python(values: list[object], wanted: pa.DataType) -> pa.Array:
    cut = next((value for value in values if _is_cut(value, wanted)), None)
    if cut is not None:
        raise ValueError(f"{cut!r} is not whole")
    return pa.array(values, type=wanted, from_pandas=False)


def _is_cut(value: object, wanted: pa.DataType) -> bool:
    """Whether Arrow would silently cut off the fraction of a number in this value."""
    if types.is_integer(wanted):
        return isinstance(value, float | np.floating) and not float(value).is_integer()
    if types.is_list(wanted) and isinstance(value, list | tuple):
        return any(_is_cut(item, wanted.value_type) for item in value)
    if types.is_struct(wanted) and isinstance(value, Mapping):
        return any(_is_cut(value.get(field.name), field.type) for field in wanted)
    return False
