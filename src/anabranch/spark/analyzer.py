"""Analyze the dataflow's SQL with Catalyst: types and errors, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.dataflow.sql.ports import Transformed
from anabranch.dataflow.types.schema import to_ddl
from anabranch.spark.failure import quietly, sentence
from anabranch.spark.jvm import TREE_PATTERN, class_name, java_class
from anabranch.spark.step.assembly import empty_frame
from anabranch.spark.step.transforms import ORD_FIELD, TIME_FIELD, analyze_transform, carried_schema

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
        asked = _analyzed(lambda: self._table(schema).where(F.expr(text)))
        return asked if isinstance(asked, str) else self._objection(asked, [text])

    def columns(
        self, schema: pa.Schema, expressions: Sequence[tuple[str | None, str]]
    ) -> pa.Schema | str:
        """The columns that the expressions produce, or why one of them is wrong."""
        texts = [text for _, text in expressions]

        def ask() -> DataFrame:
            made = [(name, F.expr(text)) for name, text in expressions]
            return self._table(schema).select(*(c if n is None else c.alias(n) for n, c in made))

        asked = _analyzed(ask)
        if isinstance(asked, str):
            return asked
        return self._objection(asked, texts) or _output_schema(asked, schema, texts)

    def transform(
        self, schema: pa.Schema, function: Callable[[Any], Any], *, ordered: bool, timed: bool
    ) -> Transformed | str:
        """What a function returns for a DataFrame of these columns, or why it cannot be used."""
        own = [field for field, given in ((ORD_FIELD, ordered), (TIME_FIELD, timed)) if given]
        with quietly():
            given = self._table(pa.schema([*schema, *own]))
            return analyze_transform(given, function, timed=timed)

    def _table(self, schema: pa.Schema) -> DataFrame:
        text = to_ddl(schema)
        if text not in self._tables:
            self._tables[text] = empty_frame(self._spark, schema)
        return self._tables[text]

    def _objection(self, asked: DataFrame, texts: Sequence[str]) -> str | None:
        """Why expressions that Catalyst accepts cannot be used; None if they can."""
        plan = asked._jdf.queryExecution().analyzed()
        patterns = java_class(self._spark._jvm, TREE_PATTERN)
        if plan.containsPattern(patterns.PLAN_EXPRESSION()):
            return "subqueries are not possible here"
        if class_name(plan) == "Aggregate" or plan.children().head().children().size():
            return _MORE_ROWS
        if not plan.deterministic():
            return "the expression is not deterministic: a step run again must give the same rows"
        current = any(_CURRENT_TIME.search(text) for text in texts)
        if current or plan.containsPattern(patterns.CURRENT_LIKE()):
            return "the current time, user or database differs when a step runs again"
        return None


def _analyzed(ask: Callable[[], DataFrame]) -> DataFrame | str:
    """What Catalyst makes of a question, or its objection."""
    try:
        with quietly():
            return ask()
    except (PySparkException, Py4JJavaError) as error:
        return sentence(error)


def _output_schema(asked: DataFrame, schema: pa.Schema, texts: Sequence[str]) -> pa.Schema | str:
    found = len(asked.columns)
    if found != sum(len(schema) if text.strip() == "*" else 1 for text in texts):
        return f"it gives {found} columns: name them one by one"
    return carried_schema(asked, range(found))
