"""The callback sink: a function of the user's is given each committed step as a DataFrame.

Operations
    ``function(df, step)`` is called after the commit of the step, beside later steps, in step
    order and one step at a time. ``df`` has the stream's columns and reads the staged files of
    that step: it is good for the time of the call. A step without rows is skipped.

Guarantees
    Every committed step that has rows is handed over at least once, always with the same rows, and
    a step only after the one before has returned. After a clean end no step is handed over again.

Non-guarantees
    After a crash, steps may be handed over again, with the same numbers. A function that writes its
    rows and the step's number in one transaction, and skips a number that it has, makes it once.
    The order of rows within a step means nothing.

Failure and recovery
    A function that raises is called again, ever more rarely, for as long as ``retry`` says; then
    the pipeline stops with ``CallbackFailed``, and the next start begins with that step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.dataflow.functions import DriverFunction, code_fingerprint, describe_function
from anabranch.errors import AnabranchError, BuildError, CallbackFailed
from anabranch.operators.error_text import failing_line, short
from anabranch.protocol.sinks import Frames, Retry, SinkContext, StagedStep, as_retry
from anabranch.sinks.columns import refused_columns
from anabranch.sinks.parquet import encode_parquet, staged_parquet

Callback = Callable[[Any, int], object]

_LAZY = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


@dataclass(frozen=True, slots=True)
class CallbackSink:
    """Calls ``function(df, step)`` with the rows of each committed step.

    It runs in the process of the pipeline, beside the steps; the DataFrame's jobs give way to
    theirs. What the function returns is ignored. ``retry`` says for how long one that raises is
    called again.
    """

    #: staged rows are Parquet, which Spark reads
    stage_format: ClassVar[str] = "parquet"

    function: Callback
    retry: Retry = field(default=Retry(), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what could never be called, or would do nothing when it is."""
        function = self.function
        as_retry(self.retry, "CallbackSink")
        if not callable(function):
            raise TypeError(f"CallbackSink takes a function(df, step), not {function!r}")
        for called in (function, getattr(type(function), "__call__", None)):  # noqa: B004
            if any(is_lazy(called) for is_lazy in _LAZY):
                raise TypeError(
                    f"CallbackSink: {describe_function(function)} is async or a generator, and "
                    "calling it does nothing: use a plain function"
                )
        if not _takes_two(function):
            raise TypeError(
                f"CallbackSink: {describe_function(function)} cannot be called with a DataFrame "
                "and a step: let it take (df, step)"
            )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the function's fingerprint alone: tasks stage rows and never call it."""
        function = self.function
        if isinstance(function, DriverFunction):
            return (_without_function, (function.fingerprint,))
        return (_without_function, (code_fingerprint(function),))

    def refuses(self, schema: pa.Schema) -> str | None:
        """Say which columns Parquet cannot hold."""
        return refused_columns(schema, text_keys=False)

    def encode(self, table: pa.Table) -> pa.Buffer:
        """Give the rows as a Parquet file."""
        return encode_parquet(table)

    def open(self, context: SinkContext) -> CallbackPublisher:
        """Give the publisher; there is nothing to open."""
        if context.frames is None:
            raise BuildError(
                f"Sink {context.sink!r} takes DataFrames, and this pipeline runs without Spark",
                do="Use a FileSink or a MemorySink.",
            )
        return CallbackPublisher(self.function, context.frames, context)


@dataclass(frozen=True, slots=True)
class CallbackPublisher:
    """Hands committed steps to the function."""

    function: Callback
    frames: Frames
    context: SinkContext

    def publish(self, staged: StagedStep) -> None:
        """Call the function with a step's rows."""
        step = staged.step
        paths = staged_parquet(self.context, step, staged.files)
        df = self.frames.frame(paths, self.context.schema)
        try:
            self.function(df, step)
        except AnabranchError:
            raise
        except Exception as error:
            raise CallbackFailed(
                f"The callback of sink {self.context.sink!r} raised {type(error).__name__} at "
                f"step {step}: {short(str(error))}",
                where=failing_line(error, self.function),
                do="The step is committed and its output stays staged. The function is called with "
                "it again, for as long as the sink is retried; else mend it and run the pipeline "
                "again.",
            ) from error


def _without_function(fingerprint: str) -> CallbackSink:
    sink = object.__new__(CallbackSink)
    object.__setattr__(sink, "function", DriverFunction(None, fingerprint))
    return sink


def _takes_two(function: Callback) -> bool:
    try:
        inspect.signature(function, follow_wrapped=False).bind(None, None)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # Built-in functions need not tell.
    return True
