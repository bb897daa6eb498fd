"""The columns of a stream, as far as they are known.

Without an analyzer, or after a mistake, a column's type or a row's list of columns may be unknown.
Checks skip what is unknown, so that one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa


class Column(msgspec.Struct, frozen=True):
    """One column. ``field`` is None if its type is unknown."""

    name: str
    field: pa.Field | None

    @property
    def type(self) -> pa.DataType | None:
        """Its Arrow type, or None if unknown."""
        return None if self.field is None else self.field.type

    def __eq__(self, other: object) -> bool:
        """Compare name and type; Arrow itself cannot compare a field with None."""
        if not isinstance(other, Column):
            return NotImplemented
        if self.field is None or other.field is None:
            return self.name == other.name and self.field is other.field
        return self.name == other.name and bool(self.field.equals(other.field))

    def __hash__(self) -> int:
        """Hash the name, which is consistent with ``__eq__``."""
        return hash(self.name)


class RowType(msgspec.Struct, frozen=True):
    """The columns of a stream's rows, in order.

    ``open``: there may be more columns than those listed. Names are case-insensitive, as in Spark.
    """

    columns: tuple[Column, ...]
    open: bool = False

    @classmethod
    def of(cls, fields: Iterable[pa.Field]) -> RowType:
        """The fully known row of these fields."""
        return cls(tuple(Column(field.name, field) for field in fields))

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """The column of this name in any case, or None."""
        return next((c for c in self.columns if same_name(c.name, name)), None)

    def known(self) -> pa.Schema:
        """The columns of known type."""
        return pa.schema([column.field for column in self.columns if column.field is not None])

    def schema(self) -> pa.Schema | None:
        """The Arrow schema, or None if anything about the row is unknown."""
        known = self.known()
        return None if self.open or len(known) < len(self.columns) else known


#: A wholly unknown row.
UNKNOWN_ROW = RowType((), open=True)


def same_name(one: str, other: str) -> bool:
    """Whether two column names are the same to Spark."""
    return one.lower() == other.lower()


def unknown(name: str) -> Column:
    """A column of unknown type."""
    return Column(name, None)
