"""Catalyst as the analyzer of the dataflow's SQL: types and errors, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import GeographyType, GeometryType, VariantType

from anabranch.dataflow.schema import COLLATION, to_ddl

_OPAQUE = (VariantType, GeometryType, GeographyType)
_MORE_ROWS = re.compile(r"^\W*(Window|Generate|Aggregate|Join)\b", re.MULTILINE)
_CHANGING = re.compile(r"current_(timestamp|date|time)\b|localtimestamp|\bnow\(")
_COLLATED = re.compile(r"string collate (\S+)", re.IGNORECASE)


class SparkAnalyzer:
    """Asks Catalyst about expressions over an empty table of the schema."""

    def __init__(self, spark: SparkSession) -> None:
        """Nothing is asked yet."""
        self._spark = spark
        self._tables: dict[str, DataFrame] = {}

    def condition(self, schema: pa.Schema, text: str) -> str | None:
        """Why the text is not a condition over these columns; None where it is one."""
        try:
            asked = self._table(schema).select(F.expr(text))
            refused = _refused(asked)
            kind = asked.schema.fields[0].dataType.simpleString()
        except PySparkException as error:
            return _sentence(error)
        if refused is None and kind != "boolean":
            return f'"{text}" gives {kind}, not a condition'
        return refused

    def columns(
        self, schema: pa.Schema, expressions: Sequence[tuple[str | None, str]]
    ) -> pa.Schema | str:
        """The columns that the expressions give, or why one of them is wrong."""
        try:
            asked = self._table(schema).select(*(_column(n, text) for n, text in expressions))
            refused = _refused(asked)
            return refused if refused is not None else _arrow(asked)
        except PySparkException as error:
            return _sentence(error)

    def _table(self, schema: pa.Schema) -> DataFrame:
        text = to_ddl(schema)
        if text not in self._tables:
            self._tables[text] = self._spark.createDataFrame([], text)
        return self._tables[text]


def _column(name: str | None, text: str) -> Column:
    column = F.expr(text)
    return column if name is None else column.alias(name)


def _refused(asked: DataFrame) -> str | None:
    """Why these expressions cannot be used, though Catalyst understands them."""
    plan = asked._jdf.queryExecution().analyzed()
    shape = str(plan)
    if plan.getClass().getSimpleName() != "Project" or _MORE_ROWS.search(shape):
        return "only expressions over one row are possible here: no aggregates, windows, generators"
    if not plan.deterministic():
        return "the expression is not deterministic: a step that runs again must give the same rows"
    changing = _CHANGING.search(shape)
    if changing is not None:
        return f"{changing.group().rstrip('(')} gives another value when a step runs again"
    if "subquery" in shape.lower():
        return "subqueries are not possible here"
    return None


def _arrow(asked: DataFrame) -> pa.Schema | str:
    for field in asked.schema.fields:
        if isinstance(field.dataType, _OPAQUE):
            return (
                f"column {field.name} is {field.dataType.simpleString()}, which has no Arrow form"
            )
    try:
        schema = to_arrow_schema(asked.schema, timezone="UTC")
    except PySparkException as error:
        return f"a column has a type without an Arrow form: {error}"
    fields = []
    for field, column in zip(asked.schema.fields, schema, strict=True):
        collated = _COLLATED.search(field.dataType.simpleString())
        metadata = {COLLATION: collated[1].encode()} if collated is not None else None
        fields.append(pa.field(column.name, column.type, column.nullable, metadata))
    return pa.schema(fields)


def _sentence(error: PySparkException) -> str:
    """The first sentence of Spark's message, without its error class and its query context."""
    if not isinstance(error, AnalysisException | ParseException):
        raise error
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", str(error))
    text = re.split(r"\s*SQLSTATE|\s*;\s*line|\n\s*\n|\n== SQL", text)[0]
    return " ".join(text.split()).rstrip(".; ")
