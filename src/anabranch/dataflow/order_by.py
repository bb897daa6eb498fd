"""``order_by=``: the columns by which a stateful operator orders a key's rows of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa

from anabranch.dataflow.findings import Finding
from anabranch.dataflow.types.row_type import RowType
from anabranch.dataflow.types.schema import type_text

OrderBy: TypeAlias = "str | Sequence[str] | None"
By: TypeAlias = "str | Sequence[str]"

_DIRECTIONS = ("asc", "desc")
_COMPARABLE = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_date32,
    pa.types.is_timestamp,
)


class OrderColumn(msgspec.Struct, frozen=True):
    """A column to order by, and its direction. With ``order_by``, NULL comes first either way."""

    name: str
    descending: bool = False


def order_columns(operator: str, order_by: OrderBy) -> tuple[OrderColumn, ...]:
    """Parse ``order_by``, e.g. ``"at"`` or ``["at desc", "id"]``; ``TypeError`` unless it is text.

    >>> order_columns("process", ["at", "n desc"])
    (OrderColumn(name='at', descending=False), OrderColumn(name='n', descending=True))
    """
    if order_by is None:
        return ()
    texts = [order_by] if isinstance(order_by, str) else list(order_by)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f'{operator} takes order_by= as text, e.g. "at" or ["at desc", "id"]')
    return tuple(_column(text) for text in texts)


def by_columns(operator: str, by: By) -> tuple[OrderColumn, ...]:
    """Parse ``by``, e.g. ``"n desc, id"`` or ``["n desc", "id"]``; ``TypeError`` unless it is text.

    >>> by_columns("top", "n desc, id")
    (OrderColumn(name='n', descending=True), OrderColumn(name='id', descending=False))
    """
    texts = by.split(",") if isinstance(by, str) else list(by)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f'{operator} takes by= as text, e.g. "n desc, id"')
    return tuple(_column(text) for text in texts if text.strip())


def _column(text: str) -> OrderColumn:
    name, _, direction = text.strip().rpartition(" ")
    if name and direction.lower() in _DIRECTIONS:
        return OrderColumn(name.strip(), direction.lower() == "desc")
    return OrderColumn(text.strip())


def order_findings(row: RowType, columns: Sequence[OrderColumn]) -> list[Finding]:
    """Why rows cannot be ordered by these columns."""
    found = []
    for column in columns:
        known = row.find(column.name)
        if known is None and row.open:
            continue
        if known is None:
            what = f'order_by: there is no column "{column.name}"'
            found.append(Finding(what, f"The columns are {', '.join(row.names)}."))
        elif known.field is not None and not any(is_(known.field.type) for is_ in _COMPARABLE):
            found.append(
                Finding(
                    f'order_by: column "{column.name}" has type {type_text(known.field.type)}',
                    "Order by numbers, dates, times or booleans: cast it with .with_columns.",
                )
            )
    return found
