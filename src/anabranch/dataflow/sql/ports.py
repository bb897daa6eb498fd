"""What the dataflow room asks of others: someone who understands SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Transformed:
    """What a function over DataFrames gives: its columns, and whether rows keep their ``_ord``."""

    columns: pa.Schema
    ordered: bool


class Analyzer(Protocol):
    """Whoever understands SQL over rows of a schema. Answers, and changes nothing.

    Every expression is over one row and gives the same value each time. An analyzer therefore
    refuses what is not (aggregates, window functions, generators, subqueries, ``rand()``,
    ``current_timestamp()``), with a text that says so. The texts it returns are one sentence.
    """

    def condition(self, schema: pa.Schema, text: str) -> str | None:
        """Why the text is not a boolean expression over these columns; None where it is one."""
        ...

    def columns(
        self, schema: pa.Schema, expressions: Sequence[tuple[str | None, str]]
    ) -> pa.Schema | str:
        """The columns that the expressions give, or why one of them is wrong.

        Each expression comes with its column's name, or None where the text itself says
        (``amount as total``) or SQL decides. ``*`` without a name stands for all columns. String
        columns with a collation have it in their field's metadata (``schema.COLLATION``).
        """
        ...

    def transform(
        self, schema: pa.Schema, function: Callable[[Any], Any], *, ordered: bool
    ) -> Transformed | str:
        """What a function gives for a DataFrame of these columns, or why it cannot be used.

        ``ordered``: the DataFrame has the column ``_ord`` beside them.
        """
        ...
