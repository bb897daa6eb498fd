"""The columns of a stream as far as they are known.

Without an analyzer, or after a mistake, a column's type or a row's list of columns may be unknown.
Unknown is a value of its own here, so that one mistake is reported once: checks ask, and stay
silent where the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``field`` is None while its type is unknown."""

    name: str
    field: pa.Field | None

    @property
    def type(self) -> pa.DataType | None:
        """Its Arrow type, if it is known."""
        return None if self.field is None else self.field.type

    def __eq__(self, other: object) -> bool:
        """Whether name and type are the same; Arrow itself cannot compare a field with None."""
        if not isinstance(other, Column):
            return NotImplemented
        if self.field is None or other.field is None:
            return self.name == other.name and self.field is other.field
        return self.name == other.name and bool(self.field.equals(other.field))

    def __hash__(self) -> int:
        """Fits ``__eq__``."""
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class RowType:
    """The columns of a stream's rows, in order.

    ``open`` says that there may be columns beyond those listed. Names are looked up as Spark does
    it, without regard to case.
    """

    columns: tuple[Column, ...]
    open: bool = False

    @classmethod
    def of(cls, fields: Iterable[pa.Field]) -> RowType:
        """The row of a schema or of some of its fields; everything about it is known."""
        return cls(tuple(Column(field.name, field) for field in fields))

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are known, in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """The column of this name, whatever its case."""
        return next((c for c in self.columns if same_name(c.name, name)), None)

    def known(self) -> pa.Schema:
        """The columns whose types are known."""
        return pa.schema([column.field for column in self.columns if column.field is not None])

    def schema(self) -> pa.Schema | None:
        """The Arrow schema, or None while anything about the row is unknown."""
        known = self.known()
        return None if self.open or len(known) < len(self.columns) else known


#: A row about which nothing is known.
UNKNOWN_ROW = RowType((), open=True)


def same_name(one: str, other: str) -> bool:
    """Whether Spark takes two column names for the same."""
    return one.lower() == other.lower()


def unknown(name: str) -> Column:
    """A column of which only the name is known."""
    return Column(name, None)
