"""The port through which the dataflow room asks Spark to analyze SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa


class Transformed(msgspec.Struct, frozen=True):
    """The result of a transform: its columns, and whether rows keep ``_ord`` and ``_time``."""

    columns: pa.Schema
    ordered: bool
    timed: bool = False


class Analyzer(Protocol):
    """Analyzes SQL over rows of a schema, without side effects.

    An expression must depend on one row alone and be deterministic. An analyzer therefore rejects
    aggregates, window functions, generators, subqueries, ``rand()``, ``current_timestamp()`` and
    the like, and says so. The reasons it returns are one sentence.
    """

    def condition(self, schema: pa.Schema, text: str) -> str | None:
        """Why the text is not a boolean expression over these columns; None if it is."""
        ...

    def columns(
        self, schema: pa.Schema, expressions: Sequence[tuple[str | None, str]]
    ) -> pa.Schema | str:
        """The columns that the expressions give, or why one of them is wrong.

        Each expression comes with a column name, or None if the text (``amount as total``) or SQL
        decides. ``*`` without a name stands for all columns. The collation of a string column is in
        its field's metadata (``schema.COLLATION``).
        """
        ...

    def transform(
        self, schema: pa.Schema, function: Callable[[Any], Any], *, ordered: bool, timed: bool
    ) -> Transformed | str:
        """The result of a function over a DataFrame of these columns, or why it cannot be used.

        ``ordered`` and ``timed``: the DataFrame also has the column ``_ord``, or ``_time``.
        """
        ...
