"""The input of a step that failed, read again: the rows of its files before each operator.

Rows carry the file that they are from. Only operators that are SQL are followed: what a function
makes of a row would have to be computed by calling it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.dataflow.graph import (
    DistributeNode,
    Graph,
    GraphNode,
    KeyByNode,
    LocalNode,
    SelectNode,
    SourceNode,
    SplitNode,
    WhereNode,
    WithColumnsNode,
)
from anabranch.records.plan import Plan
from anabranch.sources.files import FileSource
from anabranch.spark.step.assembly import Assembly
from anabranch.spark.step.reading import FileReader
from anabranch.task.program import Program

FILE = "_ab_file"
"""The column with the path of a row's file."""


def step_files(
    program: Program, plan: Plan
) -> Iterator[tuple[SourceNode, FileSource, tuple[str, ...]]]:
    """The sources that read files, and the files of this step."""
    slices = {given.source: given.slices for given in plan.inputs}
    for node in program.physical.sources():
        if isinstance(node.source, FileSource):
            yield node, node.source, node.source.paths(slices.get(node.name, ()))


def file_rows(spark: SparkSession, source: FileSource, paths: tuple[str, ...]) -> DataFrame:
    """The rows of files, as the source gives them."""
    reader = FileReader(Assembly(spark), source, ordered=False)
    return reader.load(paths).selectExpr("*", f"_metadata.file_path as {FILE}")


def given_rows(
    graph: Graph, node: GraphNode, rows: DataFrame
) -> Iterator[tuple[GraphNode, DataFrame]]:
    """The operators behind ``node``, which gives ``rows``, each with the rows that it gets."""
    for consumer in graph.consumers(node.id):
        yield consumer, rows
        if sql_texts(consumer) or isinstance(consumer, DistributeNode | LocalNode):
            yield from given_rows(graph, consumer, _output(consumer, rows))


def sql_texts(node: GraphNode) -> tuple[str, ...]:
    """The SQL of an operator."""
    match node:
        case WhereNode(condition=text):
            return (text,)
        case SplitNode(conditions=texts) | SelectNode(expressions=texts):
            return tuple(text for text in texts if text.strip() != "*")
        case WithColumnsNode(columns=named) | KeyByNode(keys=named):
            return tuple(text for _, text in named)
        case _:
            return ()


def _output(node: GraphNode, rows: DataFrame) -> DataFrame:
    """The rows behind an operator."""
    match node:
        case WhereNode(condition=text):
            return rows.where(text)
        case SelectNode(expressions=texts):
            return rows.selectExpr(*texts, *([] if "*" in texts else [FILE]))
        case WithColumnsNode(columns=named):
            return rows.withColumns({name: F.expr(text) for name, text in named})
        case _:
            return rows
