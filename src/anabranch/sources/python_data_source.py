"""Python data sources of Spark's as sources: what the user says about one.

How one is opened and read is in `spark/sources/data_source.py`: only `spark/` has its classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.sources.arguments import as_count, as_options, as_schema, set_fields
from anabranch.sources.opened_by_spark import OpenedBySpark
from anabranch.sources.positions import Position, PositionOnly

KIND = "python-data-source"

PLACES = 64
"""The partitions of a step are dealt out to so many places, in turn, and a place has one reader:
how many partitions there are is known only when a step runs."""

_VERBS = ("streamReader", "simpleStreamReader")


@dataclass(frozen=True, slots=True, init=False)
class PythonDataSource(OpenedBySpark, PositionOnly):
    """The rows of a `pyspark.sql.datasource.DataSource` that can be read as a stream.

    `source` is the class, made with `options` as `spark.readStream.format(…).options(…)` would
    make it, or an instance. Its `streamReader` is used, or else its `simpleStreamReader`. The
    schema is the data source's own unless one is given.

    A step reads from where the last one ended to `latestOffset`. These offsets are journalled, so
    what lies between two offsets must stay the same: a step that runs again asks for the same
    `partitions(start, end)` (of a simple reader, `readBetweenOffsets(start, end)`). Partitions are
    read in tasks, each by a reader that was made there; rows may be tuples, `Row`s or Arrow
    batches. `commit(end)` is called when a commit covers `end`, and perhaps again.

    `max_rows_per_step` is passed on as a `ReadMaxRows` to a reader that takes limits; without it
    the reader's own `getDefaultReadLimit` holds.

    With `watch=False` the source ends when there is nothing new. A reader that has
    `prepareForTriggerAvailableNow` is told beforehand, so that its end is fixed when it is opened.
    """

    what: ClassVar[str] = "a Python data source"
    #: what a reader talks to is not known
    blocking: ClassVar[bool] = True

    source: Any
    options: tuple[tuple[str, str], ...]
    given: pa.Schema | None
    watch: bool
    max_rows_per_step: int | None

    def __init__(
        self,
        source: object,
        options: Mapping[str, object] | None = None,
        schema: str | pa.Schema | None = None,
        *,
        watch: bool = True,
        max_rows_per_step: int | None = None,
    ) -> None:
        """Check and keep the arguments. The data source is not made before it is needed."""
        if not all(callable(getattr(source, verb, None)) for verb in _VERBS):
            raise TypeError(
                "source must be a pyspark.sql.datasource.DataSource, a class or an instance, "
                f"not {source!r}"
            )
        if options is not None and not isinstance(source, type):
            raise TypeError("options are for a class: an instance has been given its own")
        rows = max_rows_per_step
        set_fields(
            self,
            source=source,
            options=as_options(options, of_files=False),
            given=None if schema is None else as_schema(schema),
            watch=bool(watch),
            max_rows_per_step=None if rows is None else as_count(rows, "max_rows_per_step"),
        )


class OffsetPosition(Position, frozen=True, kw_only=True):
    """Up to which offset a data source has been handed out: JSON text."""

    name: str
    offset: str
