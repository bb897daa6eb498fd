"""The input of a step, level by level: files for the JVM, orders for Python's read tasks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from anabranch.dataflow.graph import SourceNode
from anabranch.messages import FileTags
from anabranch.plan.boundary import seats_of_level
from anabranch.protocol.sources import read_by_spark
from anabranch.records.plan import Input, Plan
from anabranch.sources.file_uri import file_tag
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.spark.jvm import Java, class_name
from anabranch.spark.sources.opening import SparkSources
from anabranch.spark.step.assembly import Assembly
from anabranch.spark.step.plan_cache import Place
from anabranch.spark.step.reading import FileReader, ReadOrder, ReadPart, read_orders
from anabranch.task.program import Program

LoadedFiles = dict[Place, DataFrame]
"""Files by their source and the level that reads their rows."""


@dataclass(frozen=True, slots=True)
class LevelInput:
    """The input of one level."""

    level: int
    files: tuple[tuple[SourceNode, tuple[str, ...]], ...]
    orders: tuple[ReadOrder, ...]

    @property
    def shape(self) -> Hashable:
        """What the level's query depends on."""
        return self.level, tuple(node.id for node, _ in self.files), bool(self.orders)


@dataclass
class Inputs:
    """Finds the input of one program's steps. For one thread at a time."""

    assembly: Assembly
    program: Program
    sources: SparkSources
    _readers: dict[Place, FileReader] = field(default_factory=dict)

    def of(self, plan: Plan) -> list[LevelInput]:
        """The input of a step; asks Python data sources for their partitions."""
        return [self._of_level(plan, n + 1) for n in range(len(self.program.physical.levels) - 1)]

    def load(self, inputs: Iterable[LevelInput]) -> LoadedFiles:
        """Let Spark list all files."""
        return {
            (node.id, each.level): self._reader(node, each.level).load(paths)
            for each in inputs
            for node, paths in each.files
        }

    def rows(self, node: SourceNode, level: int, files: LoadedFiles) -> DataFrame:
        """The rows of a source's files, with the additional columns that steps need."""
        return self._reader(node, level).rows(files[node.id, level])

    def tags(self, plan: Plan) -> FileTags:
        """The tags by which the rows of each source name their files."""
        inputs = {given.source: given for given in plan.inputs}
        return tuple(
            (number, tuple(map(file_tag, node.source.paths(inputs[node.name].slices))))
            for number, node in enumerate(self.program.physical.sources())
            if node.name in inputs and read_by_spark(node.source)
        )

    def _of_level(self, plan: Plan, level: int) -> LevelInput:
        inputs = {given.source: given for given in plan.inputs}
        boundary = self.program.boundary(level)
        wanted = boundary.needed_producers()
        partitions = (
            seats_of_level(boundary.level, plan).partitions if boundary.level.exchange else 1
        )
        files: list[tuple[SourceNode, tuple[str, ...]]] = []
        orders: list[ReadOrder] = []
        for number, node in enumerate(self.program.physical.sources()):
            given = inputs.get(node.name)
            if given is None or not given.slices or node.id not in wanted:
                continue
            if read_by_spark(node.source):
                files.append((node, node.source.paths(given.slices)))
            else:
                orders += read_orders(node, number, self._parts(node, given), plan, partitions)
        return LevelInput(level, tuple(files), tuple(orders))

    def _parts(self, node: SourceNode, given: Input) -> list[ReadPart]:
        """What Python tasks read of a source: planned slices, or the partitions it names now."""
        if isinstance(node.source, PythonDataSource):
            found = self.sources.partitions(node.name, given.slices)
            return [ReadPart(number, data) for number, data in enumerate(found)]
        return [ReadPart(part.partition or 0, part) for part in given.slices]

    def _reader(self, node: SourceNode, level: int) -> FileReader:
        if (node.id, level) not in self._readers:
            ordered = bool(self.program.boundary(level).made_order)
            self._readers[node.id, level] = FileReader(self.assembly, node.source, ordered=ordered)
        return self._readers[node.id, level]


def indexes_of(files: LoadedFiles) -> Mapping[Place, Java] | None:
    """Spark's index of each listing of files; None if one does not expose it."""
    indexes: dict[Place, Java] = {}
    for place, df in files.items():
        plan = df._jdf.logicalPlan()
        if class_name(plan) != "LogicalRelation":
            return None
        indexes[place] = plan.relation().location()
    return indexes
