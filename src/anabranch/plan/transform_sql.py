"""The rows that a transform gets and gives, as SQL: its input with ``_ord``, its output without.

Inside, the order of a row is a list of order columns; the user's function sees them as one opaque
value. What it returns with each row is taken apart again, and one digit is added: a hash of the
row's content. So rows with equal ``_ord`` have an order that depends on nothing but the rows (R9).
"""

from __future__ import annotations

import pyarrow as pa

from anabranch.dataflow.naming import ORD
from anabranch.dataflow.sql.sql_text import quote, sql_literal
from anabranch.dataflow.types.schema import COLLATION
from anabranch.operators.order.row_order import READER_COLUMNS
from anabranch.plan.boundary import (
    FROM,
    SOURCE_SHIFT,
    UNNUMBERED,
    made_value_name,
    order_names,
    producer_mark,
    value_name,
)
from anabranch.plan.physical import Edge, Physical, Transform
from anabranch.plan.sql import Crossing

ORD_TYPE = pa.struct([("at", pa.list_(pa.int64()))])
"""What the user sees of the order: a value that no column of theirs is by accident."""

_NULL_ORD = (
    f"transform {{}}: a row has NULL in {ORD}: return the {ORD} of the row that each row came "
    f"from, or drop the column {ORD} to give up the order"
)
_MICROSECONDS = "yyyy-MM-dd HH:mm:ss.SSSSSS"


def inflow(
    crossing: Crossing, transform: Transform, edge: Edge, table: str, *, by_jvm: bool
) -> str:
    """The rows of one of a transform's inputs under the user's names, and their ``_ord``.

    ``by_jvm``: the table is a source's as the JVM reads it.
    """
    physical = crossing.boundary.physical
    names = physical.schemas[edge.producer].names
    columns = {name: made_value_name(edge.producer, i) for i, name in enumerate(names)}
    order = [] if transform.given is None else order_names(edge.digits)
    rows, parts = table, order
    if physical.is_transform(edge.producer):
        pass
    elif by_jvm:
        columns, order = {name: name for name in names}, order[: READER_COLUMNS - 1]
        parts = _file_order(physical, edge, order)
    else:
        rows = f"(select * from {table} where {FROM} = {producer_mark(edge.producer)})"
    made = crossing.chained(rows, edge, columns, order)
    given = [
        f"{value_name(edge, i)} as {quote(column.name)}" for i, column in enumerate(edge.columns)
    ]
    if transform.given is not None:
        parts = [*parts, *["0L"] * (transform.given - edge.digits)]
        given.append(f"named_struct('at', array({', '.join(parts)})) as {ORD}")
    return f"select {', '.join(given)} from {made}"


def outflow(physical: Physical, transform: Transform, table: str) -> str:
    """What the user's function gave, as rows of a producer."""
    schema = physical.schemas[transform.id]
    made = [
        f"{quote(name)} as {made_value_name(transform.id, i)}"
        for i, name in enumerate(schema.names)
    ]
    if transform.ordered:
        assert transform.given is not None
        name = getattr(physical.node(transform.id), "name", "")
        complaint = sql_literal(_NULL_ORD.format(name))
        *before, last = order_names(transform.given + 1)
        kept = f"coalesce({ORD}, raise_error({complaint}))"
        made += [f"{kept}.at[{i}] as {column}" for i, column in enumerate(before)]
        made.append(f"{content_hash(schema)} as {last}")
    return f"select {', '.join(made)} from {table}"


def content_hash(schema: pa.Schema) -> str:
    """A number for the content of a row: rows that differ have different ones.

    Spark's hash passes over NULLs, takes -0.0 for 0.0 and texts for equal that a collation takes
    for equal; so it is told of NULLs, and gets a text for everything that is not plain.
    """
    parts: list[str] = []
    for column in schema:
        name = quote(column.name)
        parts += [f"{name} is null", name] if _is_plain(column) else [_as_text(name)]
    return f"xxhash64({', '.join(parts)})"


def _as_text(name: str) -> str:
    formats = f"map('timestampFormat', '{_MICROSECONDS}', 'timestampNTZFormat', '{_MICROSECONDS}')"
    return f"to_json(struct({name}), {formats})"


def _is_plain(column: pa.Field) -> bool:
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return False
    return COLLATION not in (column.metadata or {})


def _file_order(physical: Physical, edge: Edge, reader: list[str]) -> list[str]:
    """The order of rows of files: the file by its tag, which tasks turn into its number."""
    if not reader:
        return []
    number = [node.id for node in physical.sources()].index(edge.producer)
    file = f"{reader[0]} + {UNNUMBERED + (number << SOURCE_SHIFT)}L"
    return [file, reader[1], "monotonically_increasing_id()"]
