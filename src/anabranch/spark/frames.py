"""Staged files as DataFrames: Spark's side of publishing.

Its jobs run in their own session, so that nothing a callback sets or registers reaches the steps,
and in a pool that ``pools.xml`` does not name, which has the lowest weight: they use the capacity
that steps leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from anabranch.dataflow.types.schema import to_ddl
from anabranch.errors import BuildError, PublishFailed
from anabranch.protocol.sinks import SparkFormat
from anabranch.sources.file_uri import hadoop_path, spark_path
from anabranch.spark.failure import brief, quietly
from anabranch.spark.jvm import java_class
from anabranch.spark.session import use_pool, use_session
from anabranch.spark.step.assembly import empty_frame

POOL = "publishing"

_SOURCES = "org.apache.spark.sql.execution.datasources"
_DATA_SOURCE = f"{_SOURCES}.DataSource"
_FILES = (f"{_SOURCES}.FileFormat", f"{_SOURCES}.v2.FileDataSourceV2")
# Spark's writers truncate microseconds by default.
_TIME_FORMATS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
_TEXT_FORMATS = ("csv", "json", "xml")


@dataclass(frozen=True)
class SparkFrames:
    """DataFrames over staged Parquet files; opens the session on first use."""

    open_session: Callable[[], SparkSession]

    def check(self, form: SparkFormat, schema: pa.Schema, scratch: Path) -> None:
        """Raise ``BuildError`` unless Spark can write rows of this schema in this format."""
        # This is the thread that runs steps: its jobs stay in their pool.
        use_session(self._session)
        try:
            with quietly():
                self._check_files(form)
                self._save(empty_frame(self._session, schema), form, scratch)
        except (PySparkException, Py4JError) as error:
            raise BuildError(
                f"Spark cannot write these rows as {form.name}: {brief(str(error)).rstrip('.')}",
                do="Give the sink another format, other options or other columns. A format that "
                "Spark does not include needs its package in spark_conf (spark.jars.packages).",
            ) from error

    def write(
        self, form: SparkFormat, files: Sequence[Path], schema: pa.Schema, directory: Path
    ) -> None:
        """Write the rows of staged files to a new directory."""
        try:
            with quietly():
                self._save(self.frame(files, schema), form, directory)
        except (PySparkException, Py4JError) as error:
            raise PublishFailed(
                f"Spark could not write the output as {form.name}: {brief(str(error)).rstrip('.')}",
                where=str(directory.parent.parent),
                do="The output stays staged. Fix the cause and run the pipeline again.",
            ) from error

    def frame(self, files: Sequence[Path], schema: pa.Schema) -> DataFrame:
        """The rows of staged files, with the columns of the schema."""
        use_pool(self._session, POOL)
        use_session(self._session)
        paths = [spark_path(str(path)) for path in files]
        return self._session.read.schema(to_ddl(schema)).parquet(*paths)

    @cached_property
    def _session(self) -> SparkSession:
        spark = self.open_session()
        # Unlike a step, a callback does not know how many tasks it wants.
        spark.conf.set("spark.sql.adaptive.enabled", "true")
        return spark

    def _save(self, df: DataFrame, form: SparkFormat, directory: Path) -> None:
        writer: DataFrameWriter = df.write.format(form.name)
        if form.name in _TEXT_FORMATS:
            # Spark's names of options ignore case: the user's override ours.
            writer = writer.options(**_TIME_FORMATS)
        writer = writer.options(**dict(form.options))
        if form.partition_by:
            writer = writer.partitionBy(*form.partition_by)
        writer.save(hadoop_path(str(directory)))

    def _check_files(self, form: SparkFormat) -> None:
        """Reject a format that does not write files, which could not be moved."""
        jvm = self._session._jvm
        conf = self._session._jsparkSession.sessionState().conf()
        found = java_class(jvm, _DATA_SOURCE).lookupDataSource(form.name, conf)
        loader, classes = found.getClassLoader(), java_class(jvm, "java.lang.Class")
        known = (classes.forName(name, False, loader) for name in _FILES)
        if not any(each.isAssignableFrom(found) for each in known):
            what = f"{form.name!r} is not a file format"
            raise BuildError(what, do="Use a CallbackSink and write its DataFrame.")
