"""What a dead letter looks like, and what an operator does with rows that it cannot process."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pyarrow as pa

from anabranch.dataflow.sql.sql_text import sql_literal
from anabranch.dataflow.types.schema import parse_schema

#: What happens to a row for which a function of the user's raises: the step fails, or the row
#: becomes a dead letter and the step goes on.
OnError: TypeAlias = Literal["fail", "dead-letter"]

DEAD_LETTER_DDL = (
    "operator string, kind string, key string, row string, place string, error string, "
    "traceback string, step bigint"
)
DEAD_LETTER_SCHEMA: pa.Schema = parse_schema(DEAD_LETTER_DDL)
"""What a dead letter consists of.

=========  ======================================================================================
operator   the operator or source that met the row
kind       ``function``: a function of the user's raised; ``malformed``: input did not fit
key        the key as a JSON object; NULL where there is none
row        the row as a JSON object; of malformed input the raw text, as it was read
place      where the row came from, such as a file; NULL where that is not known
error      type and message of what was raised; of malformed input what is wrong with it
traceback  the stack from the user's function on; NULL where no code of the user's was involved
step       the step that met the row
=========  ======================================================================================
"""


def malformed_letters(source: str, raw: str, file: str, reason: str) -> tuple[str, ...]:
    """The columns of a malformed row's letter, from SQL for its text, its file and the reason.

    The step is left open: a task knows it.

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


def check_on_error(operator: str, on_error: object) -> None:
    """Refuse anything but the two policies."""
    if on_error not in ("fail", "dead-letter"):
        raise ValueError(f'{operator}: on_error is "fail" or "dead-letter", not {on_error!r}')
