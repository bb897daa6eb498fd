"""Resolves SQL expressions to columns, with an analyzer if there is one.

Without an analyzer only the plain cases have a type: a column, a renamed column and ``*``. Other
expressions, and those over a column of unknown type, have an unknown type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

from anabranch.dataflow.findings import Finding, choose_among
from anabranch.dataflow.sql.ports import Analyzer
from anabranch.dataflow.sql.sql_text import identifier, split_alias
from anabranch.dataflow.types.row_type import Column, RowType, unknown
from anabranch.dataflow.types.schema import type_text

#: A column's name, or None if the text decides, and its SQL expression.
Expression = tuple[str | None, str]


class Resolved(msgspec.Struct, frozen=True):
    """The columns of some expressions; ``open`` if there may be more than these."""

    columns: tuple[Column, ...] = ()
    open: bool = False
    findings: tuple[Finding, ...] = ()


class Resolver(msgspec.Struct, frozen=True):
    """Resolves expressions over rows, with or without an analyzer."""

    analyzer: Analyzer | None

    def condition(self, row: RowType, text: str) -> Finding | None:
        """Why a text cannot be a condition over this row; None if it can."""
        if not text.strip():
            return Finding("its condition is empty", 'Write one, e.g. "amount > 0".')
        name = identifier(text)
        if name is not None and row.find(name) is None:
            return None if row.open else no_column(row, name)
        schema = row.schema()
        if self.analyzer is not None and schema is not None:
            error = self.analyzer.condition(schema, text)
            return None if error is None else _bad_sql(row, text, error)
        column = None if name is None else row.find(name)
        if column is None or column.type is None or pa.types.is_boolean(column.type):
            return None
        return Finding(
            f'"{column.name}" is {type_text(column.type)}, not boolean',
            f'Compare it with something, e.g. "{column.name} is not null".',
        )

    def columns(self, row: RowType, expressions: Sequence[Expression]) -> Resolved:
        """The columns of these expressions; ``*`` stands for all columns of the row."""
        if self.analyzer is None:
            # Spark lets an expression refer to the alias of another one beside it.
            aliases = [a for name, text in expressions if not name and (a := split_alias(text)[1])]
            scope = RowType((*row.columns, *map(unknown, aliases)), open=row.open)
            return _sum(
                _resolve_plain(row if text.strip() == "*" else scope, (name, text))
                for name, text in expressions
            )
        schema = row.schema()
        if schema is None:
            return _sum(self._resolve_open(row, expression) for expression in expressions)
        answer = self.analyzer.columns(schema, expressions)
        if isinstance(answer, str):
            # At least one is wrong: ask for each, to report all of them.
            return _sum(self._resolve_known(row, schema, each) for each in expressions)
        return Resolved(RowType.of(answer).columns)

    def named(self, row: RowType, pairs: Sequence[tuple[str, str]]) -> Resolved:
        """Exactly one column per pair of a name and an expression, in order."""
        together = self.columns(row, pairs)
        if not together.findings and len(together.columns) == len(pairs):
            return together
        return _sum(self._resolve_named(row, name, text) for name, text in pairs)

    def _resolve_named(self, row: RowType, name: str, text: str) -> Resolved:
        resolved = self.columns(row, [(name, text)])
        if len(resolved.columns) == 1:
            return resolved
        finding = Finding(
            f'"{text}" gives {len(resolved.columns)} columns for "{name}"',
            "Write an expression with one value.",
        )
        return Resolved((unknown(name),), findings=(*resolved.findings, finding))

    def _resolve_open(self, row: RowType, expression: Expression) -> Resolved:
        """Resolve an expression over a partly known row, if the known columns are enough.

        A failure is not reported: its cause may be the unknown part, which was reported before.
        """
        plain = _resolve_plain(row, expression)
        if self.analyzer is None or plain.findings or expression[1].strip() == "*":
            return plain
        answer = self.analyzer.columns(row.known(), [expression])
        return plain if isinstance(answer, str) else Resolved(RowType.of(answer).columns)

    def _resolve_known(self, row: RowType, schema: pa.Schema, expression: Expression) -> Resolved:
        assert self.analyzer is not None
        answer = self.analyzer.columns(schema, [expression])
        if not isinstance(answer, str):
            return Resolved(RowType.of(answer).columns)
        plain = _resolve_plain(row, expression)
        if plain.findings:
            return plain
        finding = _bad_sql(row, expression[1], answer)
        columns = tuple(unknown(column.name) for column in plain.columns)
        return Resolved(columns, plain.open, (finding,))


def no_column(row: RowType, name: str) -> Finding:
    """The finding for a reference to a missing column."""
    return Finding(f'there is no column "{name}"', choose_among(name, row.names))


def _sum(parts: Iterable[Resolved]) -> Resolved:
    every = list(parts)
    return Resolved(
        tuple(column for part in every for column in part.columns),
        any(part.open for part in every),
        tuple(finding for part in every for finding in part.findings),
    )


def _bad_sql(row: RowType, text: str, error: str) -> Finding:
    columns = ", ".join(row.names)
    return Finding(
        f'"{text}" cannot be used: {error.strip().rstrip(".")}',
        f"Correct the expression; the columns are: {columns}.",
    )


def _resolve_plain(row: RowType, expression: Expression) -> Resolved:
    """Resolve an expression as far as that works without understanding SQL."""
    name, text = expression
    if not text.strip():
        columns = () if name is None else (unknown(name),)
        return Resolved(columns, True, (Finding("an expression is empty", "Write one."),))
    if name is None and text.strip() == "*":
        return Resolved(row.columns, row.open)
    body, alias = (text, None) if name is not None else split_alias(text)
    reference = identifier(body)
    if reference is None:
        given = name or alias
        return Resolved((unknown(given),)) if given else Resolved(open=True)
    column = row.find(reference)
    given = name or alias or reference
    if column is None:
        findings = () if row.open else (no_column(row, reference),)
        return Resolved((unknown(given),), findings=findings)
    if column.field is None:
        return Resolved((unknown(given),))
    return Resolved((Column(given, column.field.with_name(given)),))
