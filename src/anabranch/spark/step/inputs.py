"""What a step reads, level by level: files that the JVM reads, and orders for Python tasks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from anabranch.dataflow.graph import SourceNode
from anabranch.messages import FileTags
from anabranch.plan.boundary import seats_of_level
from anabranch.records.plan import Input, Plan
from anabranch.records.slices import FileSlice, RangeSlice
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.sources.structured_stream import read_by_spark
from anabranch.spark.sources.opening import SparkSources
from anabranch.spark.step.assembly import Assembly
from anabranch.spark.step.plan_cache import Place
from anabranch.spark.step.reading import (
    FileReader,
    PartitionPart,
    ReadOrder,
    ReadPart,
    read_orders,
    tags_of,
)
from anabranch.task.program import Program

Found = dict[Place, DataFrame]
"""Files by their source and the level that their rows go to."""


@dataclass(frozen=True, slots=True)
class LevelInput:
    """What is read for one level."""

    level: int
    files: tuple[tuple[SourceNode, tuple[FileSlice, ...]], ...]
    orders: tuple[ReadOrder, ...]

    @property
    def shape(self) -> Hashable:
        """What the query over it depends on."""
        return self.level, tuple(node.id for node, _ in self.files), bool(self.orders)


class Inputs:
    """Finds what steps of one program read. For one thread at a time."""

    def __init__(self, assembly: Assembly, program: Program, sources: SparkSources) -> None:
        """No call is made yet."""
        self._assembly = assembly
        self._program = program
        self._sources = sources
        self._readers: dict[Place, FileReader] = {}

    def of(self, plan: Plan) -> list[LevelInput]:
        """What the step reads; a Python data source is asked for its partitions."""
        return [self._of_level(plan, n + 1) for n in range(len(self._program.physical.levels) - 1)]

    def found(self, inputs: Iterable[LevelInput]) -> Found:
        """Let Spark look at all files."""
        return {
            (node.id, each.level): self._reader(node, each.level).found(slices)
            for each in inputs
            for node, slices in each.files
        }

    def rows(self, node: SourceNode, level: int, found: Found) -> DataFrame:
        """The rows of a source's files, with what is needed beside their own columns."""
        return self._reader(node, level).rows(found[node.id, level])

    def tags(self, plan: Plan) -> FileTags:
        """How the rows of each source name their files."""
        inputs = {given.source: given for given in plan.inputs}
        return tuple(
            tags_of(number, _files(inputs[node.name]))
            for number, node in enumerate(self._program.physical.sources())
            if node.name in inputs and read_by_spark(node.source)
        )

    def _of_level(self, plan: Plan, level: int) -> LevelInput:
        inputs = {given.source: given for given in plan.inputs}
        boundary = self._program.boundary(level)
        wanted = boundary.needed_producers()
        partitions = (
            seats_of_level(boundary.level, plan).partitions if boundary.level.exchange else 1
        )
        files: list[tuple[SourceNode, tuple[FileSlice, ...]]] = []
        orders: list[ReadOrder] = []
        for number, node in enumerate(self._program.physical.sources()):
            given = inputs.get(node.name)
            if given is None or not given.slices or node.id not in wanted:
                continue
            if read_by_spark(node.source):
                files.append((node, _files(given)))
            else:
                orders += read_orders(node, number, self._parts(node, given), plan, partitions)
        return LevelInput(level, tuple(files), tuple(orders))

    def _parts(self, node: SourceNode, given: Input) -> list[ReadPart]:
        """What Python tasks read of a source: ranges as planned, or partitions asked for now."""
        if isinstance(node.source, PythonDataSource):
            found = self._sources.partitions(node.name, given.slices)
            return [PartitionPart(number, data) for number, data in enumerate(found)]
        return [part for part in given.slices if isinstance(part, RangeSlice)]

    def _reader(self, node: SourceNode, level: int) -> FileReader:
        if (node.id, level) not in self._readers:
            ordered = bool(self._program.boundary(level).made_order)
            self._readers[node.id, level] = FileReader(self._assembly, node.source, ordered=ordered)
        return self._readers[node.id, level]


def indexes_of(found: Found) -> Mapping[Place, Any] | None:
    """What Spark knows of the files; None where it keeps that to itself."""
    indexes: dict[Place, Any] = {}
    for place, df in found.items():
        plan: Any = df._jdf.logicalPlan()
        if plan.getClass().getSimpleName() != "LogicalRelation":
            return None
        indexes[place] = plan.relation().location()
    return indexes


def _files(given: Input) -> tuple[FileSlice, ...]:
    return tuple(part for part in given.slices if isinstance(part, FileSlice))
