"""Release executors that no worker needs any more, and request them again when one does."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pyspark.sql import SparkSession

from anabranch.spark.jvm import PYTHON_UTILS, java_class, scala_items
from anabranch.spark.session import OWNED


class Releasing(StrEnum):
    """What happens to executors when workers go.

    ``local``: there are none, everything runs in one process. ``dynamic``: Spark's dynamic
    allocation releases idle ones. ``kept``: someone else started Spark and may have other work for
    them. ``idle``: we release idle ones.
    """

    LOCAL = "local"
    DYNAMIC = "dynamic"
    KEPT = "kept"
    IDLE = "idle"


def releasing(spark: SparkSession) -> Releasing:
    """What happens to this session's executors when workers go."""
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
    #: how many were released and not requested again
    released: int = field(default=0)

    def fit(self, workers: int) -> int:
        """Have as many executors as workers need, but never more than Spark started with.

        Returns how many were released; negative: how many were requested. Busy ones stay, and so
        does whatever the cluster refuses to change.
        """
        if releasing(self.spark) is not Releasing.IDLE:
            return 0
        there = self._list()
        if not there:
            return 0
        cores = max(min(cores for _, cores, _ in there), 1)
        wanted = max(-(-workers // cores), 1)
        if wanted > len(there):
            return -self._request(len(there), min(wanted - len(there), self.released))
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
        # Spark does not count its initial executors as requested: without a total it would not
        # replace one that is lost later.
        self._request_total(there - len(ids))
        return len(ids)

    def _request(self, there: int, count: int) -> int:
        if count <= 0 or not self._request_total(there + count):
            return 0
        self.released -= count
        return count

    def _request_total(self, total: int) -> bool:
        """Tell Spark how many executors to have."""
        jvm: Any = self.spark._jvm
        context: Any = self.spark.sparkContext._jsc.sc()
        nowhere = java_class(jvm, PYTHON_UTILS).toScalaMap(java_class(jvm, "java.util.HashMap")())
        return bool(context.requestTotalExecutors(total, 0, nowhere))

    def _list(self) -> list[tuple[str, int, int]]:
        """Id, cores and running tasks of every executor, oldest first."""
        context: Any = self.spark.sparkContext._jsc.sc()
        found = scala_items(context.statusStore().executorList(True))
        rows = [(e.id(), int(e.totalCores()), int(e.activeTasks())) for e in found]
        return sorted(
            (row for row in rows if row[0] != "driver"), key=lambda row: (len(row[0]), row[0])
        )
