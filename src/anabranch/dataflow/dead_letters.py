"""Dead letters: their columns, and the policy for rows that an operator cannot process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import pyarrow as pa

from anabranch.dataflow.sql.sql_text import quote, sql_literal
from anabranch.dataflow.types.schema import parse_schema

#: What to do if the user's function raises for a row: fail the step, or make the row a dead letter
#: and go on.
OnError: TypeAlias = Literal["fail", "dead-letter"]

UNTIMED = "untimed"
"""The kind of a dead letter for a row without an event time."""

DEAD_LETTER_DDL = (
    "operator string, kind string, key string, row string, place string, error string, "
    "traceback string, step bigint"
)
DEAD_LETTER_SCHEMA: pa.Schema = parse_schema(DEAD_LETTER_DDL)
"""The columns of a dead letter.

=========  ======================================================================================
operator   the operator or source that met the row
kind       ``function``: the user's function raised; ``malformed``: the input did not fit;
           ``untimed``: the row has no event time
key        the key as a JSON object; NULL if there is none
row        the row as a JSON object; for malformed input, the raw text
place      where the row came from, such as a file; NULL if unknown
error      type and message of the exception; for malformed input, what is wrong with it
traceback  the stack from the user's function on; NULL if no user code was involved
step       the step that met the row
=========  ======================================================================================
"""


def malformed_letters(source: str, raw: str, file: str, reason: str) -> tuple[str, ...]:
    """The columns of a malformed row's dead letter, from SQL for its text, file and reason.

    The step is NULL; the task fills it in.

    >>> malformed_letters("orders", "r", "f", "'why'")[3:5]
    ('r as row', 'f as place')
    """
    return (
        f"{sql_literal(source)} as operator",
        "'malformed' as kind",
        "cast(null as string) as key",
        f"{raw} as row",
        f"{file} as place",
        f"{reason} as error",
        "cast(null as string) as traceback",
        "cast(null as bigint) as step",
    )


def untimed_letters(source: str, column: str, columns: Sequence[str]) -> tuple[str, ...]:
    """SQL for the columns of the dead letter of a row with these columns and without a time.

    >>> untimed_letters("orders", "at", ["id", "at"])[3]
    "to_json(named_struct('id', `id`, 'at', `at`))"
    """
    row = ", ".join(f"{sql_literal(name)}, {quote(name)}" for name in columns)
    null = "cast(null as string)"
    return (
        sql_literal(source),
        f"'{UNTIMED}'",
        null,
        f"to_json(named_struct({row}))",
        null,
        sql_literal(untimed_reason(column)),
        null,
        "cast(null as bigint)",
    )


def untimed_reason(column: str) -> str:
    """Why a row has no event time."""
    return f"column {column} is NULL"
