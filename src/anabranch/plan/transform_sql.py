"""The SQL around a transform: its input with ``_ord`` and ``_time``, its output without.

The user's function sees a row's order columns as one opaque value. The value it returns with each
row is split into columns again, and a hash of the row's content is added as one more digit. So the
order of rows with equal ``_ord`` depends only on the rows (R9). ``_ord`` also says whether
notifications made the row.
"""

from __future__ import annotations

import pyarrow as pa

from anabranch.dataflow.naming import ORD
from anabranch.dataflow.naming import TIME as USER_TIME
from anabranch.dataflow.sql.sql_text import quote, sql_literal
from anabranch.dataflow.types.schema import COLLATION
from anabranch.operators.order.row_order import READER_COLUMNS
from anabranch.plan.boundary import (
    FIRED,
    FROM,
    SOURCE_SHIFT,
    TIME,
    UNNUMBERED,
    made_value_name,
    null_time,
    order_names,
    producer_mark,
    value_name,
)
from anabranch.plan.physical import Edge, Physical, Transform
from anabranch.plan.sql import Crossing, partition_columns, transformed_times
from anabranch.plan.time_sql import CutQuery, Cuts

ORD_TYPE = pa.struct([("at", pa.list_(pa.int64()))])
"""The type of ``_ord``, which no column of the user's has by accident."""

_NULL_ORD = (
    f"transform {{}}: a row has NULL in {ORD}: return each row with the {ORD} of its input row, "
    f"or drop the column {ORD} to give up the order"
)
_NULL_TIME = (
    f"transform {{}}: a row has NULL in {USER_TIME}: return each row with the {USER_TIME} of its "
    f"input row, or drop the column {USER_TIME} to give up event times"
)
_MICROSECONDS = "yyyy-MM-dd HH:mm:ss.SSSSSS"


def inflow(
    crossing: Crossing, transform: Transform, edge: Edge, table: str, *, by_jvm: bool
) -> CutQuery:
    """Select the rows of one input of a transform, under the user's names, with our columns.

    ``by_jvm``: the table is a source that the JVM reads.
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
    if edge.assignment is not None and not edge.assignment.told:
        rows = f"(select *, {null_time(TIME)} from {rows})"
    times = [name for name, is_there in ((TIME, edge.timed), (FIRED, edge.fired)) if is_there]
    cuts, kept = Cuts(crossing.partitions), [*order, *times, *partition_columns([edge], order)]
    made = crossing.run_chain(rows, edge, columns, kept, cuts, guarded=False)
    given = [
        f"{value_name(edge, i)} as {quote(column.name)}" for i, column in enumerate(edge.columns)
    ]
    if transform.given is not None:
        parts = [*parts, *["0L"] * (transform.given - edge.digits)]
        if transform.fired:
            parts.append(f"if({FIRED}, 1L, 0L)" if edge.fired else "0L")
        given.append(f"named_struct('at', array({', '.join(parts)})) as {ORD}")
    if edge.timed:
        given.append(f"timestamp_micros({TIME}) as {USER_TIME}")
    return CutQuery(f"select {', '.join(given)} from {made}", tuple(cuts.made))


def outflow(physical: Physical, transform: Transform, table: str) -> str:
    """Select the output of the user's function as rows of a producer."""
    schema = physical.schemas[transform.id]
    name = getattr(physical.node(transform.id), "name", "")
    made = [
        f"{quote(name)} as {made_value_name(transform.id, i)}"
        for i, name in enumerate(schema.names)
    ]
    before: list[str] = []
    if transform.ordered:
        assert transform.given is not None
        complaint = sql_literal(_NULL_ORD.format(name))
        *before, last = order_names(transform.given + 1)
        kept = f"coalesce({ORD}, raise_error({complaint}))"
        made += [f"{kept}.at[{i}] as {column}" for i, column in enumerate(before)]
        made.append(f"{content_hash(schema)} as {last}")
    times = transformed_times(transform)
    if TIME in times:
        complaint = sql_literal(_NULL_TIME.format(name))
        made.append(f"unix_micros(coalesce({USER_TIME}, raise_error({complaint}))) as {TIME}")
    if FIRED in times:
        made.append(f"{ORD}.at[{len(before)}] = 1 as {FIRED}")
    return f"select {', '.join(made)} from {table}"


def content_hash(schema: pa.Schema) -> str:
    """SQL for a hash of a row's content that tells different rows apart.

    Spark's hash skips NULLs, equates -0.0 and 0.0, and follows collations. So NULLs are hashed
    explicitly, and everything that is not plain is hashed as text.
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
    """The order of file rows, with the file's tag, which tasks replace by its number."""
    if not reader:
        return []
    number = [node.id for node in physical.sources()].index(edge.producer)
    file = f"{reader[0]} + {UNNUMBERED + (number << SOURCE_SHIFT)}L"
    return [file, reader[1], "monotonically_increasing_id()"]
