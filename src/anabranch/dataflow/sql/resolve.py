"""SQL expressions to columns: by the analyzer where there is one, else the plain cases alone.

Plain are a column, a renamed column and ``*``. Anything else has an unknown type without an
analyzer, and so has what depends on a column that is unknown itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.dataflow.findings import Finding, choose_among
from anabranch.dataflow.sql.ports import Analyzer
from anabranch.dataflow.sql.sql_text import identifier, split_alias
from anabranch.dataflow.types.row_type import Column, RowType, unknown
from anabranch.dataflow.types.schema import type_text

#: A column's name, or None where the text decides, and its SQL expression.
Expression = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The columns that expressions give; ``open`` where there may be more than these."""

    columns: tuple[Column, ...] = ()
    open: bool = False
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: Resolved) -> Resolved:
        """One after the other."""
        return Resolved(
            self.columns + other.columns,
            self.open or other.open,
            self.findings + other.findings,
        )


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves expressions over rows, with or without an analyzer."""

    analyzer: Analyzer | None

    def condition(self, row: RowType, text: str) -> Finding | None:
        """Why a text cannot be a condition over this row."""
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
        """The columns of these expressions; ``*`` gives all of the row's."""
        if self.analyzer is None:
            return _sum(_plain(row, expression) for expression in expressions)
        schema = row.schema()
        if schema is None:
            return _sum(self._partly(row, expression) for expression in expressions)
        answer = self.analyzer.columns(schema, expressions)
        if isinstance(answer, str):
            # One is wrong, perhaps more: ask for each, so that all of them are reported.
            return _sum(self._one(row, schema, expression) for expression in expressions)
        return Resolved(RowType.of(answer).columns)

    def named(self, row: RowType, pairs: Sequence[tuple[str, str]]) -> Resolved:
        """Exactly one column for each pair of a name and an expression, in this order."""
        together = self.columns(row, pairs)
        if not together.findings and len(together.columns) == len(pairs):
            return together
        return _sum(self._single(row, name, text) for name, text in pairs)

    def _single(self, row: RowType, name: str, text: str) -> Resolved:
        resolved = self.columns(row, [(name, text)])
        if len(resolved.columns) == 1:
            return resolved
        finding = Finding(
            f'"{text}" gives {len(resolved.columns)} columns for "{name}"',
            "Write an expression with one value.",
        )
        return Resolved((unknown(name),), findings=(*resolved.findings, finding))

    def _partly(self, row: RowType, expression: Expression) -> Resolved:
        """An expression over a row that is not fully known: right where the rest is enough for it.

        Where it is not, what is wrong may be the unknown part, which has been reported.
        """
        plain = _plain(row, expression)
        if self.analyzer is None or plain.findings or expression[1].strip() == "*":
            return plain
        answer = self.analyzer.columns(row.known(), [expression])
        return plain if isinstance(answer, str) else Resolved(RowType.of(answer).columns)

    def _one(self, row: RowType, schema: pa.Schema, expression: Expression) -> Resolved:
        assert self.analyzer is not None
        answer = self.analyzer.columns(schema, [expression])
        if not isinstance(answer, str):
            return Resolved(RowType.of(answer).columns)
        plain = _plain(row, expression)
        if plain.findings:
            return plain
        finding = _bad_sql(row, expression[1], answer)
        columns = tuple(unknown(column.name) for column in plain.columns)
        return Resolved(columns, plain.open, (finding,))


def no_column(row: RowType, name: str) -> Finding:
    """A reference to a column that does not exist."""
    return Finding(f'there is no column "{name}"', choose_among(name, row.names))


def _sum(parts: Iterable[Resolved]) -> Resolved:
    total = Resolved()
    for part in parts:
        total += part
    return total


def _bad_sql(row: RowType, text: str, error: str) -> Finding:
    columns = ", ".join(row.names)
    return Finding(
        f'"{text}" cannot be used: {error.strip().rstrip(".")}',
        f"Correct the expression; the columns are: {columns}.",
    )


def _plain(row: RowType, expression: Expression) -> Resolved:
    """What can be said of an expression without understanding SQL."""
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
