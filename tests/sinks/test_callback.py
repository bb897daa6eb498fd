"""The callback sink without Spark: what is called, with what, and what is told when it fails."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import BuildError, CallbackFailed, CorruptStaged, DiskFull
from anabranch.protocol.sinks import Publisher, Sink, SinkContext, StagedStep
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.callback import CallbackSink
from anabranch.sinks.staging import RowsToStage, stage
from tests.sinks.plain_frames import PlainFrames

SCHEMA = pa.schema({"n": pa.int64()})


def nothing(df: Any, step: int) -> None:
    """A callback at the top of a module, so that it can be pickled."""


def opened(store: Path, sink: CallbackSink) -> Publisher:
    return sink.open(SinkContext(store, "p", "totals", SCHEMA, PlainFrames()))


def staged(store: Path, *values: int) -> list[StagedFile]:
    tables = [pa.table({"n": [value]}, schema=SCHEMA) for value in values]
    sink = CallbackSink(nothing)
    return list(
        stage(store, [RowsToStage(f"s/{k}", "totals", sink, t) for k, t in enumerate(tables)])
    )


def test_the_function_gets_all_rows_of_a_step_and_its_number(tmp_path: Path) -> None:
    calls: list[tuple[list[int], int]] = []
    sink = CallbackSink(lambda df, step: calls.append((df["n"].to_pylist(), step)))
    publisher = opened(tmp_path, sink)
    publisher.publish(StagedStep(0, 3, tuple(staged(tmp_path, 1, 2))))
    assert calls == [([1, 2], 3)]


def test_what_it_raises_is_told_with_sink_step_and_line(tmp_path: Path) -> None:
    def write(df: Any, step: int) -> None:
        raise OSError("the door is locked")

    with pytest.raises(CallbackFailed) as raised:
        opened(tmp_path, CallbackSink(write)).publish(StagedStep(0, 3, tuple(staged(tmp_path, 1))))
    text = str(raised.value)
    assert "'totals' raised OSError at step 3: 'the door is locked'" in text
    assert f"of {__file__}: raise OSError" in text
    assert raised.value.code == "sink.callback"


def test_an_error_of_ours_is_raised_as_it_is(tmp_path: Path) -> None:
    def write(df: Any, step: int) -> None:
        raise DiskFull("no space left")

    with pytest.raises(DiskFull):
        opened(tmp_path, CallbackSink(write)).publish(StagedStep(0, 3, tuple(staged(tmp_path, 1))))


def test_a_damaged_staged_file_is_not_handed_over(tmp_path: Path) -> None:
    files = staged(tmp_path, 1, 2)
    (tmp_path / files[1].name).write_bytes(b"x")
    calls: list[int] = []
    with pytest.raises(CorruptStaged):
        opened(tmp_path, CallbackSink(lambda df, step: calls.append(step))).publish(
            StagedStep(0, 3, tuple(files))
        )
    assert calls == []


async def asynchronous(df: Any, step: int) -> None:
    """Would do nothing when it is called."""


def generator(df: Any, step: int) -> Iterator[int]:
    """Would do nothing when it is called."""
    yield step


class CalledLater:
    """An object that is called, to no effect."""

    async def __call__(self, df: Any, step: int) -> None:
        """Would do nothing when it is called."""


@pytest.mark.parametrize("function", [asynchronous, generator, CalledLater()])
def test_a_function_that_would_do_nothing_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="calling it does nothing"):
        CallbackSink(function)


@pytest.mark.parametrize("function", [lambda df: None, lambda df, step, more: None])
def test_a_function_that_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match=r"let it take \(df, step\)"):
        CallbackSink(function)


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(TypeError, match="not 7"):
        CallbackSink(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "function", [nothing, functools.partial(lambda more, df, step: None, 1), print]
)
def test_what_can_be_called_is_taken(function: Any) -> None:
    assert isinstance(CallbackSink(function), Sink)


def test_it_travels_without_its_function_and_needs_spark(tmp_path: Path) -> None:
    sink = pickle.loads(pickle.dumps(CallbackSink(nothing)))
    assert isinstance(sink, CallbackSink)
    assert sink.stage_format == "parquet"
    assert pickle.dumps(sink) == pickle.dumps(CallbackSink(nothing))
    assert pickle.dumps(sink) != pickle.dumps(CallbackSink(print))
    with pytest.raises(BuildError, match="runs without Spark"):
        sink.open(SinkContext(tmp_path, "p", "totals", SCHEMA))


def test_columns_that_parquet_cannot_hold_are_refused() -> None:
    sink = CallbackSink(nothing)
    assert sink.refuses(SCHEMA) is None
    assert sink.refuses(pa.schema({"t": pa.time64("us")})) is not None
