"""Expressions that need no Spark: columns by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.validate import validate

_NO_SQL = "only names of columns are understood without Spark"


class PlainColumns:
    """Understands names of columns and ``*``; refuses any other expression."""

    def condition(self, schema: pa.Schema, text: str) -> str | None:
        """Refuse: a condition is more than a name."""
        return f"{text}: {_NO_SQL}"

    def columns(
        self, schema: pa.Schema, expressions: Sequence[tuple[str | None, str]]
    ) -> pa.Schema | str:
        """The named columns, under their new names where they have one."""
        found: list[pa.Field] = []
        for name, text in expressions:
            if text == "*":
                found.extend(schema)
                continue
            place = schema.get_field_index(text)
            if place < 0:
                return f"{text}: {_NO_SQL}"
            found.append(schema.field(place).with_name(name or text))
        return pa.schema(found)

    def transform(
        self, schema: pa.Schema, function: Callable[[Any], Any], *, ordered: bool
    ) -> Transformed | str:
        """Refuse: there is no DataFrame."""
        return "transform needs Spark"


def typed_without_spark(flow: Dataflow) -> Typed:
    """A dataflow checked, whose expressions are names of columns."""
    return validate(flow.graph(), PlainColumns())
