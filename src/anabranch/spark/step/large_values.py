"""Explain why a step ran out of memory: name the operator, the column and the sizes.

Spark only says that memory ran out. So the files of the failed step are read again, one row at a
time, and the largest keys are looked for, or other values if no key is large.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from anabranch.dataflow.graph import Graph, KeyByNode, SourceNode, label
from anabranch.dataflow.sql.sql_text import quote
from anabranch.errors import StepFailed
from anabranch.records.plan import Plan
from anabranch.spark.jvm import Java
from anabranch.spark.step.failed_input import FILE, file_rows, given_rows, step_files
from anabranch.task.program import Program

LARGE_BYTES = 1 << 20
"""A smaller value is not to blame."""

_OUT_OF_MEMORY = re.compile(r"OutOfMemory(Error|Exception)|UNABLE_TO_ACQUIRE_MEMORY")
_KEY = "key column"
_GIB = 1 << 30
# Measured: a step with four JSON keys of 60 MB fails with 1 GiB and runs with 2 GiB. Twice what
# there was gives room for the rest.
_TIMES_VALUES = 8
_TIMES_HEAP = 2


@dataclass(frozen=True, slots=True)
class LargeColumn:
    """A column of an operator, and the bytes of its largest value and of all values in the step."""

    kind: str
    name: str
    operator: str
    largest: int
    total: int

    def __str__(self) -> str:
        """What is large, as a part of a sentence."""
        return (
            f"{self.kind} {self.name!r} has values of up to {self.largest:,} bytes, "
            f"{self.total:,} bytes together"
        )


def is_out_of_memory(text: str) -> bool:
    """Whether an error of Spark's says that memory ran out.

    >>> is_out_of_memory("java.lang.OutOfMemoryError: Java heap space")
    True
    """
    return _OUT_OF_MEMORY.search(text) is not None


def out_of_memory(spark: SparkSession, found: LargeColumn | None) -> StepFailed:
    """The error for a step that ran out of memory, with a remedy for this step."""
    setting, size = _enough_memory(spark, 0 if found is None else found.total)
    later = "Less input in later steps: max_bytes_per_step or max_files_per_step of the source."
    if found is not None and found.kind == _KEY:
        later = f"In a new directory, a shorter key such as sha2({found.name}, 256) avoids it."
    return StepFailed(
        "Spark ran out of memory in the step" + ("" if found is None else f": {found}"),
        where=None if found is None else found.operator,
        do="Spark gets its memory when it starts: run the pipeline again in a new process, with "
        f"--conf {setting}={size}g or spark_conf={{{setting!r}: '{size}g'}}. It repeats this step "
        f"with the same input. {later}",
    )


def largest_column(spark: SparkSession, program: Program, plan: Plan) -> LargeColumn | None:
    """The key column with the most bytes, else the column of a source; None if none is large."""
    graph = program.typed.graph
    read = [
        (node, file_rows(spark, source, paths))
        for node, source, paths in step_files(program, plan)
        if paths
    ]
    for look in (_keys, _values):
        found = [
            column
            for node, rows in read
            for column in look(graph, node, rows)
            if column.largest >= LARGE_BYTES
        ]
        if found:
            return max(found, key=lambda column: column.total)
    return None


def _keys(graph: Graph, source: SourceNode, rows: DataFrame) -> Iterator[LargeColumn]:
    for node, given in given_rows(graph, source, rows):
        if isinstance(node, KeyByNode):
            columns = [(name or text, F.expr(text)) for name, text in node.keys]
            operator = label(graph, node).removeprefix("key of ")
            yield from _measured(_KEY, operator, given.select(*(c.alias(n) for n, c in columns)))


def _values(graph: Graph, source: SourceNode, rows: DataFrame) -> Iterator[LargeColumn]:
    yield from _measured("column", label(graph, source), rows.drop(FILE))


def _measured(kind: str, operator: str, rows: DataFrame) -> Iterator[LargeColumn]:
    """The sizes of columns of text and bytes; one row is in memory at a time."""
    names = [f.name for f in rows.schema if isinstance(f.dataType, StringType | BinaryType)]
    if not names:
        return
    sizes = [F.octet_length(F.col(quote(name))) for name in names]
    asked = [function(size) for size in sizes for function in (F.max, F.sum)]
    row = rows.coalesce(1).agg(*asked).collect()[0]
    for place, name in enumerate(names):
        yield LargeColumn(kind, name, operator, row[2 * place] or 0, row[2 * place + 1] or 0)


def _enough_memory(spark: SparkSession, needed: int) -> tuple[str, int]:
    """The setting of the memory that tasks have, and a value in GiB that should do."""
    context: Java = spark.sparkContext._jsc.sc()
    if context.isLocal():
        setting = "spark.driver.memory"
        heap = int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory())  # type: ignore[union-attr]
    else:
        setting, heap = "spark.executor.memory", int(context.executorMemory()) << 20
    wanted = max(_TIMES_HEAP * heap, _TIMES_VALUES * needed)
    return setting, -(-wanted // _GIB)
