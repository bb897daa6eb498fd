"""Who types a dataflow where there is no Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.sql.sql_text import own_name, quote, split_alias
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.validate import validate
from anabranch.testing.plane.plain_sql import NotPlain, PlainValue, plain_condition, plain_value


class PlainColumns:
    """Understands what ``plain_sql`` runs, and refuses any other expression."""

    def condition(self, schema: pa.Schema, text: str) -> str | None:
        """Why the condition is not understood."""
        try:
            plain_condition(schema, text)
        except NotPlain as error:
            return str(error)
        return None

    def columns(
        self, schema: pa.Schema, expressions: Sequence[tuple[str | None, str]]
    ) -> pa.Schema | str:
        """Columns and constants, under their new names where they have one."""
        found: list[pa.Field] = []
        try:
            for name, text in expressions:
                found += [each.field for each in plain_columns(schema, name, text)]
        except NotPlain as error:
            return str(error)
        return pa.schema(found)

    def transform(
        self, schema: pa.Schema, function: Callable[[Any], Any], *, ordered: bool, timed: bool
    ) -> Transformed | str:
        """Refuse: there is no DataFrame."""
        return "transform needs Spark"


def plain_columns(schema: pa.Schema, name: str | None, text: str) -> list[PlainValue]:
    """The columns that an item of a select list gives: ``*`` gives all."""
    if name is None and text.strip() == "*":
        return [plain_value(schema, quote(field.name)) for field in schema]
    body, alias = (text, None) if name is not None else split_alias(text)
    value = plain_value(schema, body)
    given = name or alias or own_name(body)
    if given is None:
        raise NotPlain(f"without Spark, a constant needs a name, e.g. {body} as name")
    return [PlainValue(value.field.with_name(given), value.of, value.is_constant)]


def typed_without_spark(flow: Dataflow) -> Typed:
    """A dataflow checked, whose expressions run without Spark."""
    return validate(flow.graph(), PlainColumns())
