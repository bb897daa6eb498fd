"""Executors: let go of those that no worker needs any more, and asked for again when one does."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pyspark.sql import SparkSession

from anabranch.spark.jvm import PYTHON_UTILS, java_class
from anabranch.spark.session import OWNED


class Releasing(StrEnum):
    """What becomes of executors when workers go.

    ``local``: there are none, all run in one process. ``dynamic``: Spark's dynamic allocation lets
    go of idle ones by itself. ``kept``: Spark was started by somebody else, and may have other
    work. ``idle``: those that run nothing are let go of.
    """

    LOCAL = "local"
    DYNAMIC = "dynamic"
    KEPT = "kept"
    IDLE = "idle"


def releasing(spark: SparkSession) -> Releasing:
    """What becomes of this session's executors."""
    context: Any = spark.sparkContext._jsc.sc()
    if context.isLocal():
        return Releasing.LOCAL
    settings = spark.sparkContext.getConf()
    if settings.get("spark.dynamicAllocation.enabled", "false") == "true":
        return Releasing.DYNAMIC
    if settings.get(OWNED, "false") != "true":
        return Releasing.KEPT
    return Releasing.IDLE


@dataclass
class Executors:
    """The executors of one session. Results do not depend on them: homes are caches."""

    spark: SparkSession
    #: how many were let go of and not asked for again
    released: int = field(default=0)

    def fit(self, workers: int) -> int:
        """Have as many executors as workers need, and never more than Spark was started with.

        Gives how many were let go of; negative: how many were asked for. Those that run something
        stay, and whatever the cluster refuses is left as it is.
        """
        if releasing(self.spark) is not Releasing.IDLE:
            return 0
        there = self._list()
        if not there:
            return 0
        cores = max(min(cores for _, cores, _ in there), 1)
        wanted = max(-(-workers // cores), 1)
        if wanted > len(there):
            return -self._ask(len(there), min(wanted - len(there), self.released))
        idle = [id for id, _, running in reversed(there) if not running]
        return self._release(len(there), idle[: len(there) - wanted])

    def _release(self, there: int, ids: list[str]) -> int:
        if not ids:
            return 0
        jvm: Any = self.spark._jvm
        context: Any = self.spark.sparkContext._jsc.sc()
        listed = java_class(jvm, "java.util.ArrayList")()
        for id in ids:
            listed.add(id)
        if not context.killExecutors(java_class(jvm, PYTHON_UTILS).toSeq(listed)):
            return 0
        self.released += len(ids)
        # Spark takes executors that it was started with for not asked for: without a number, one
        # that is lost later would not be replaced.
        self._want(there - len(ids))
        return len(ids)

    def _ask(self, there: int, count: int) -> int:
        if count <= 0 or not self._want(there + count):
            return 0
        self.released -= count
        return count

    def _want(self, total: int) -> bool:
        """Tell Spark how many executors there are to be."""
        jvm: Any = self.spark._jvm
        context: Any = self.spark.sparkContext._jsc.sc()
        nowhere = java_class(jvm, PYTHON_UTILS).toScalaMap(java_class(jvm, "java.util.HashMap")())
        return bool(context.requestTotalExecutors(total, 0, nowhere))

    def _list(self) -> list[tuple[str, int, int]]:
        """Id, cores and running tasks of every executor, the oldest first."""
        context: Any = self.spark.sparkContext._jsc.sc()
        found = context.statusStore().executorList(True)
        each = [found.apply(place) for place in range(found.size())]
        rows = [(e.id(), int(e.totalCores()), int(e.activeTasks())) for e in each]
        return sorted(
            (row for row in rows if row[0] != "driver"), key=lambda row: (len(row[0]), row[0])
        )
