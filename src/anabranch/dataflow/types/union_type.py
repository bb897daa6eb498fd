"""The row and the key of a union, derived from its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from msgspec.structs import replace

from anabranch.dataflow.findings import Finding
from anabranch.dataflow.types.row_type import Column, RowType, unknown
from anabranch.dataflow.types.schema import COLLATION, type_text
from anabranch.dataflow.types.typed import TypedNode

_ALIGN = "Align the columns with .select before the union, or use Dataflow.union, which tags rows."


def union_row(rows: Sequence[RowType], tag: str | None) -> tuple[RowType, list[Finding]]:
    """The columns of a union; without a ``tag``, all inputs must have the same columns."""
    findings: list[Finding] = []
    columns: list[Column] = []
    if tag is not None:
        columns.append(Column(tag, pa.field(tag, pa.string(), nullable=False)))
    for number, row in enumerate(rows, start=1):
        for column in row.columns:
            place = _place(columns, column)
            if place is None:
                columns.append(column)
                if tag is None and number > 1 and not any(r.open for r in rows[: number - 1]):
                    what = f'input {number} has a column "{column.name}" that input 1 lacks'
                    findings.append(Finding(what, _ALIGN))
            elif tag is not None and place == 0:
                what = f'input {number} has a column "{column.name}", which is the tag\'s name'
                findings.append(Finding(what, "Give the tag another name."))
            else:
                columns[place], clash = _merge_columns(columns[place], column, number)
                findings += clash
    found = RowType(tuple(columns), open=any(row.open for row in rows))
    missing = [(n, c) for c in columns for n, row in enumerate(rows, 1) if _lacks(row, c, tag)]
    if tag is None:
        findings += [
            Finding(f'input {n} has no column "{c.name}"', _ALIGN)
            for n, c in missing
            if rows[0].find(c.name) is not None
        ]
        return found, findings
    lacking = {c.name for _, c in missing}
    return RowType(
        tuple(_nullable(c) if c.name in lacking else c for c in columns), open=found.open
    ), findings


def union_key(inputs: Sequence[TypedNode], after: TypedNode) -> tuple[TypedNode, list[Finding]]:
    """The union with the key and region that all inputs share, if they do.

    A union across regions is in none. A key not distributed yet is kept if all inputs have it.
    """
    first = inputs[0]
    together = all(typed.region == first.region for typed in inputs)
    kept = replace(
        after,
        key=first.key if together else None,
        region=first.region if together else None,
        next_key=None,
        ordered=all(typed.ordered for typed in inputs),
    )
    waiting = [typed.next_key for typed in inputs]
    if all(key is None for key in waiting):
        return kept, []
    if any(key is None for key in waiting):
        number = waiting.index(None) + 1
        finding = Finding(
            f"input {number} has no key, but others have one",
            "Call .key_by on each input of the union, or once after it.",
        )
        return replace(kept, next_key=next(key for key in waiting if key is not None)), [finding]
    schemas = [None if key is None else key.schema() for key in waiting]
    known = [schema for schema in schemas if schema is not None]
    if any(_shape(schema) != _shape(known[0]) for schema in known):
        finding = Finding(
            "its inputs have different keys", "Give all of them the same key columns and types."
        )
        return replace(kept, next_key=first.next_key), [finding]
    return replace(kept, next_key=first.next_key), []


def _shape(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name.lower(), field.type) for field in schema]


def _place(columns: Sequence[Column], wanted: Column) -> int | None:
    names = [column.name.lower() for column in columns]
    return names.index(wanted.name.lower()) if wanted.name.lower() in names else None


def _lacks(row: RowType, column: Column, tag: str | None) -> bool:
    return not row.open and column.name != tag and row.find(column.name) is None


def _nullable(column: Column) -> Column:
    return column if column.field is None else Column(column.name, column.field.with_nullable(True))


def _merge_columns(one: Column, other: Column, number: int) -> tuple[Column, list[Finding]]:
    """The column for one that several inputs have."""
    if one.field is None or other.field is None:
        return unknown(one.name), []
    same_collation = _collation(one.field) == _collation(other.field)
    if one.field.type != other.field.type or not same_collation:
        finding = Finding(
            f'column "{one.name}" is {type_text(one.field.type)} in one input and '
            f"{type_text(other.field.type)} in input {number}",
            f'Cast it in one of them, e.g. with_columns({one.name}="cast(…)").',
        )
        return unknown(one.name), [finding]
    return (_nullable(one) if other.field.nullable else one), []


def _collation(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(COLLATION)
    return found
