"""Analyze the dataflow's SQL with Catalyst: types and errors, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.types.schema import parse_schema, to_ddl
from anabranch.errors import InvalidSchema
from anabranch.spark.error_text import sentence
from anabranch.spark.failure import quietly
from anabranch.spark.jvm import TREE_PATTERN, java_class
from anabranch.spark.step.assembly import empty_frame
from anabranch.spark.step.transforms import ORD_FIELD, analyze_transform

_CURRENT_TIME = re.compile(
    r"\b(date|timestamp(_ltz|_ntz)?)\s*(['\"])\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE
)
_MORE_ROWS = "only expressions over one row are possible here: no aggregates, windows, generators"


class SparkAnalyzer:
    """Analyzes expressions over an empty table of the schema.

    It answers every text with types or an error message, and starts no job.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tables: dict[str, DataFrame] = {}

    def condition(self, schema: pa.Schema, text: str) -> str | None:
        """Why the text is not a condition over these columns; None if it is one."""
        try:
            with quietly():
                asked = self._table(schema).where(F.expr(text))
                return self._objection(asked, [text])
        except (PySparkException, Py4JJavaError) as error:
            return sentence(error)

    def columns(
        self, schema: pa.Schema, expressions: Sequence[tuple[str | None, str]]
    ) -> pa.Schema | str:
        """The columns that the expressions produce, or why one of them is wrong."""
        texts = [text for _, text in expressions]
        try:
            with quietly():
                asked = self._table(schema).select(*(_column(n, text) for n, text in expressions))
                return self._objection(asked, texts) or _output_schema(asked, schema, texts)
        except (PySparkException, Py4JJavaError) as error:
            return sentence(error)

    def transform(
        self, schema: pa.Schema, function: Callable[[Any], Any], *, ordered: bool
    ) -> Transformed | str:
        """What a function returns for a DataFrame of these columns, or why it cannot be used."""
        with quietly():
            given = self._table(schema.append(ORD_FIELD) if ordered else schema)
            return analyze_transform(given, function)

    def _table(self, schema: pa.Schema) -> DataFrame:
        text = to_ddl(schema)
        if text not in self._tables:
            self._tables[text] = empty_frame(self._spark, schema)
        return self._tables[text]

    def _objection(self, asked: DataFrame, texts: Sequence[str]) -> str | None:
        """Why expressions that Catalyst accepts cannot be used; None if they can."""
        plan = asked._jdf.queryExecution().analyzed()
        jvm: Any = self._spark._jvm
        patterns = java_class(jvm, TREE_PATTERN)
        if plan.containsPattern(patterns.PLAN_EXPRESSION()):
            return "subqueries are not possible here"
        if (
            plan.getClass().getSimpleName() == "Aggregate"
            or plan.children().head().children().size()
        ):
            return _MORE_ROWS
        if not plan.deterministic():
            return (
                "the expression is not deterministic: a step that runs again must give the same "
                "rows"
            )
        current = any(_CURRENT_TIME.search(text) for text in texts)
        if current or plan.containsPattern(patterns.CURRENT_LIKE()):
            return "the current time, user or database differs when a step runs again"
        return None


def _column(name: str | None, text: str) -> Column:
    column = F.expr(text)
    return column if name is None else column.alias(name)


def _output_schema(asked: DataFrame, schema: pa.Schema, texts: Sequence[str]) -> pa.Schema | str:
    """The columns as Arrow types, parsed from Spark's DDL, which describes types completely."""
    found = asked.schema.fields
    wanted = sum(len(schema) if text.strip() == "*" else 1 for text in texts)
    if len(found) != wanted:
        return f"it gives {len(found)} columns: name them one by one"
    fields: list[pa.Field] = []
    for number, field in enumerate(found):
        text = asked._jdf.schema().apply(number).toDDL()
        try:
            fields.append(parse_schema(text).field(0))
        except InvalidSchema:
            kind = field.dataType.simpleString()
            return f'column "{field.name}" is {kind}, which rows cannot carry: cast it'
    return pa.schema(fields)
