"""Checks of what users pass to sources, with errors that say what was expected."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from anabranch.dataflow.types.schema import parse_schema

_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

#: Options that choose files: choosing is the source's business, so that each is read once.
_CHOOSING = {
    "path": "path=",
    "paths": "path=",
    "basepath": "path=",
    "pathglobfilter": "a pattern in path=",
    "recursivefilelookup": "recursive=",
    "modifiedbefore": "a pattern in path=",
    "modifiedafter": "a pattern in path=",
}


def set_fields(described: object, **values: object) -> None:
    """Set the fields of a frozen dataclass that has an `__init__` of its own, from there."""
    for name, value in values.items():
        object.__setattr__(described, name, value)


def as_schema(schema: str | pa.Schema) -> pa.Schema:
    """Take a schema as DDL text or as an Arrow schema; it needs columns, each name once."""
    if isinstance(schema, str):
        schema = parse_schema(schema)
    if not isinstance(schema, pa.Schema):
        raise TypeError(
            "schema must be DDL text such as 'k string, v bigint' or a pyarrow.Schema, "
            f"not {type(schema).__name__}"
        )
    if not schema.names:
        raise ValueError("schema must have at least one column")
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise ValueError(f"schema has more than one column named {', '.join(twice)}")
    return schema


def as_size(value: int | str, argument: str) -> int:
    """Take a number of bytes, or text with a unit (powers of 1024).

    >>> as_size("64m", "max_bytes_per_step")
    67108864
    """
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        if found is None:
            raise ValueError(
                f"{argument} must be a number of bytes or text such as '64m' or '1g', not {value!r}"
            )
        value = int(found[1]) * _UNITS[found[2].lower()]
    return as_count(value, argument)


def as_count(value: int, argument: str, *, least: int = 1) -> int:
    """Take a whole number that is not below `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{argument} must be a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{argument} must be at least {least}, not {value}")
    return value


def as_options(
    options: Mapping[str, object] | None, *, of_files: bool = True
) -> tuple[tuple[str, str], ...]:
    """Take reader options as Spark does; they become text, sorted by name.

    `of_files`: options that choose files are refused.

    >>> as_options({"sep": ";", "header": True})
    (('header', 'true'), ('sep', ';'))
    """
    if options is None:
        return ()
    if not isinstance(options, Mapping):
        raise TypeError(f"options must be a mapping of names to values, not {options!r}")
    pairs = tuple(
        sorted((_option_name(name, of_files), _option(name, options[name])) for name in options)
    )
    lowered = [name.lower() for name, _ in pairs]
    if len(set(lowered)) < len(lowered):
        raise ValueError("options has a name twice (Spark does not tell upper from lower case)")
    return pairs


def _option_name(name: object, of_files: bool) -> str:
    if not isinstance(name, str):
        raise TypeError(f"options must have text as names, not {name!r}")
    instead = _CHOOSING.get(name.lower()) if of_files else None
    if instead is not None:
        raise ValueError(f"option {name!r} chooses files, which the source does: use {instead}")
    return name


def _option(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise TypeError(f"option {name!r} must be text, a number or a bool, not {value!r}")
