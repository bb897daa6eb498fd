"""Release executors that no worker needs any more, and request them again when one does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import SparkSession

from anabranch.spark.jvm import PYTHON_UTILS, Java, java_class, scala_items, scala_seq
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
    settings = spark.sparkContext.getConf()
    if _context(spark).isLocal():
        return Releasing.LOCAL
    if settings.get("spark.dynamicAllocation.enabled", "false") == "true":
        return Releasing.DYNAMIC
    return Releasing.IDLE if settings.get(OWNED, "false") == "true" else Releasing.KEPT


@dataclass
class Executors:
    """The executors of one session. Results do not depend on them: homes are caches."""

    spark: SparkSession
    #: how many were released and not requested again
    released: int = 0

    def fit(self, workers: int) -> None:
        """Have as many executors as workers need, but never more than Spark started with.

        Busy ones stay, and so does whatever the cluster refuses to change.
        """
        there = self._list() if releasing(self.spark) is Releasing.IDLE else []
        if not there:
            return
        cores = max(min(cores for _, cores, _ in there), 1)
        missing = max(-(-workers // cores), 1) - len(there)
        more = min(missing, self.released)
        if more > 0:
            if self._request_total(len(there) + more):
                self.released -= more
            return
        surplus = [id for id, _, running in reversed(there) if not running][: max(-missing, 0)]
        if surplus and _context(self.spark).killExecutors(scala_seq(self.spark, surplus)):
            self.released += len(surplus)
            # Spark does not count its initial executors as requested: without a total it would
            # not replace one that is lost later.
            self._request_total(len(there) - len(surplus))

    def _request_total(self, total: int) -> bool:
        """Tell Spark how many executors to have."""
        jvm = self.spark._jvm
        nowhere = java_class(jvm, PYTHON_UTILS).toScalaMap(java_class(jvm, "java.util.HashMap")())
        return bool(_context(self.spark).requestTotalExecutors(total, 0, nowhere))

    def _list(self) -> list[tuple[str, int, int]]:
        """Id, cores and running tasks of every executor, oldest first."""
        found = scala_items(_context(self.spark).statusStore().executorList(True))
        rows = [(e.id(), int(e.totalCores()), int(e.activeTasks())) for e in found]
        return sorted(
            (row for row in rows if row[0] != "driver"), key=lambda row: (len(row[0]), row[0])
        )


def _context(spark: SparkSession) -> Java:
    java: Java = spark.sparkContext._jsc
    return java.sc()
