"""Explain why a step failed on Spark: name the interpreter, or the operator, the file and the row.

Spark tells what is wrong with a value, and not where it came from. So the input of the failed step
is read again, and the row is searched for.
"""

from __future__ import annotations

import re
from contextlib import suppress

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.dataflow.graph import Graph, GraphNode, label
from anabranch.errors import AnabranchError, StepFailed
from anabranch.operators.error_text import short
from anabranch.plan.time_sql import NO_TIME
from anabranch.records.plan import Plan
from anabranch.spark.failure import (
    MALFORMED,
    brief,
    malformed_row_error,
    quietly,
    rebuilt,
    translate_error,
)
from anabranch.spark.session import PER_SESSION, new_session
from anabranch.spark.step.failed_input import FILE, file_rows, given_rows, sql_texts, step_files
from anabranch.spark.step.large_values import is_out_of_memory, largest_column, out_of_memory
from anabranch.spark.step.reading import malformed_row
from anabranch.spark.worker_python import MODULES, wrong_python
from anabranch.task.event_times import missing_time
from anabranch.task.program import Program

CANDIDATES = 20
"""How many rows are tried one by one."""

_UNTIMED = re.compile(
    rf"{re.escape(NO_TIME)}: source '(.*?)', column '(.*?)': (.*?)(?:\s*SQLSTATE|$)", re.MULTILINE
)
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)'")
_DATA_ERROR = re.compile(r"SQLSTATE: 22\w{3}")
_CONTEXT = "== SQL ("
_VALUE = "_ab_value"
_LENIENT = {**PER_SESSION, "spark.sql.ansi.enabled": "false"}


def explain_step_error(
    spark: SparkSession, program: Program, plan: Plan, error: Exception
) -> AnabranchError:
    """Translate an error of Spark's into one of ours, with its place if that can be found."""
    text = str(error)
    missing = _MISSING.search(text)
    if missing is not None and missing[1] in MODULES:
        python = spark.sparkContext.pythonExec
        return wrong_python(python, f"which does not have {missing[1]}")
    untimed = _UNTIMED.search(text)
    if untimed is not None:
        return missing_time(untimed[1], untimed[2], short(untimed[3]))
    if is_out_of_memory(text) and rebuilt(text) is None:
        large = None
        with suppress(Exception), quietly():
            large = largest_column(spark, program, plan)
        return out_of_memory(spark, large)
    found: AnabranchError | None = None
    with suppress(Exception), quietly():
        if MALFORMED in text:
            found = _malformed(spark, program, plan)
        elif _DATA_ERROR.search(text) is not None and rebuilt(text) is None:
            found = _failed_expression(spark, program, plan, text)
    return found or translate_error(error)


def _malformed(spark: SparkSession, program: Program, plan: Plan) -> AnabranchError | None:
    for node, source, paths in step_files(program, plan):
        found = None if source.separates else malformed_row(spark, source, paths)
        if found is not None:
            return malformed_row_error(node.name, *found)
    return None


def _failed_expression(
    spark: SparkSession, program: Program, plan: Plan, text: str
) -> AnabranchError | None:
    """The error for a row for which the user's SQL has no value: a cast, a division by zero."""
    graph = program.typed.graph
    where = None
    for first, source, paths in step_files(program, plan):
        rows = file_rows(new_session(spark, _LENIENT), source, paths)
        found = _failing_row(spark, graph, first, rows) if paths else None
        if found is not None:
            node, file, row = found
            where = f'{label(graph, node)}, file {file} of source "{first.name}", row {row}'
            break
    if where is None:
        # The operator's text stands on lines of its own in the query that Spark shows.
        lines = {line.strip() for line in text.partition(_CONTEXT)[2].splitlines()}
        places = [label(graph, node) for node in graph.nodes if lines.intersection(sql_texts(node))]
        if not places:
            return None
        where = " or ".join(dict.fromkeys(places))
    return StepFailed(
        f"A SQL expression has no value for a row: {brief(text).rstrip('.')}",
        where=where,
        do="Let the expression allow for such a row, for instance with try_cast, or drop the row "
        "with where before it. Then run the pipeline again: it continues with this step.",
    )


def _failing_row(
    spark: SparkSession, graph: Graph, node: GraphNode, rows: DataFrame
) -> tuple[GraphNode, str, str] | None:
    """The operator behind ``node`` that fails, the file and the values of a row for which it does.

    Where errors give NULL instead, such a row gives NULL. So does many another: each is tried.
    """
    for consumer, given in given_rows(graph, node, rows):
        for text in sql_texts(consumer):
            made = given.select("*", F.expr(text).alias(_VALUE)).where(f"{_VALUE} is null")
            for row in made.drop(_VALUE).limit(CANDIDATES).collect():
                values = row.asDict(recursive=True)
                try:
                    spark.createDataFrame([row], given.schema).select(F.expr(text)).collect()
                except PySparkException:
                    return consumer, str(values.pop(FILE)), short(values)
    return None
