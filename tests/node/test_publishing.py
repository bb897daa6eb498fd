"""Publishing in step order, again and again until it is done, or the pipeline stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import DiskFull, PublishFailed
from anabranch.node import publishing
from anabranch.node.publishing import Output, Publishing, output_of
from anabranch.sinks.file import FileSink
from anabranch.sinks.port import Publisher, SinkContext, StagedFile
from anabranch.sinks.staging import Rows, stage

WAIT = 10.0


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE", 0.001)


class Flaky:
    """A publisher that fails so many times before it lets another do the work."""

    def __init__(self, publisher: Publisher | None, failures: Sequence[Exception]) -> None:
        self._publisher = publisher
        self._failures = list(failures)
        self.asked: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def publish(self, step: int, files: Sequence[StagedFile]) -> None:
        assert self.gate.wait(WAIT)
        self.asked.append(step)
        if self._failures:
            raise self._failures.pop(0)
        if self._publisher is not None:
            self._publisher.publish(step, files)


def nothing(point: str, step: int) -> None:
    pass


def started(
    publishers: Mapping[str, Publisher],
    done: Mapping[str, int] | None = None,
    reached: Callable[[str, int], None] = nothing,
) -> Publishing:
    made = Publishing(publishers, done or dict.fromkeys(publishers, 0), reached)
    made.start()
    return made


class Store:
    """A store with a file sink, and steps staged in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sink = FileSink(root / "out")

    def publisher(self) -> Publisher:
        return self.sink.open(SinkContext(self.root, "pipeline", "out"))

    def output(self, step: int, rows: int = 2) -> Output:
        table = pa.table({"step": pa.array([step] * rows, pa.int64())})
        name = f"stage/out/{step:012d}-0-r-1-0-x.parquet"
        return output_of(step, stage(self.root, [Rows(name, "out", self.sink, table)]))

    def published(self) -> list[int]:
        files = sorted((self.root / "out").glob("step-*.parquet"))
        return [step for path in files for step in pq.read_table(path)["step"].to_pylist()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_steps_are_published_in_order_and_said_to_be_done(store: Store) -> None:
    points: list[tuple[str, int]] = []
    made = started({"out": store.publisher()}, reached=lambda p, s: points.append((p, s)))
    for step in (1, 2, 3):
        made.add(store.output(step))
    made.stop()
    assert store.published() == [1, 1, 2, 2, 3, 3]
    assert made.done() == {"out": 3}
    assert made.backlog() == (0, 0)
    assert points == [(p, s) for s in (1, 2, 3) for p in ("publishing out", "published")]


@pytest.mark.parametrize("error", [OSError("busy"), DiskFull("no space")])
def test_a_sink_that_fails_a_few_times_is_asked_again(store: Store, error: Exception) -> None:
    flaky = Flaky(store.publisher(), [error] * (publishing.TRIES - 1))
    made = started({"out": flaky})
    made.add(store.output(1))
    made.add(store.output(2))
    made.stop()
    assert flaky.asked == [1] * publishing.TRIES + [2]
    assert store.published() == [1, 1, 2, 2]


def test_a_sink_that_goes_on_failing_stops_publishing_with_the_reason(store: Store) -> None:
    flaky = Flaky(store.publisher(), [RuntimeError("the door is locked")] * publishing.TRIES)
    made = started({"out": flaky})
    outputs = [store.output(1), store.output(2)]
    for output in outputs:
        made.add(output)
    with pytest.raises(PublishFailed, match="'out' raised RuntimeError: the door is locked") as got:
        made.stop()
    assert got.value.where == "step 1"
    assert "stays staged" in str(got.value)
    assert flaky.asked == [1] * publishing.TRIES
    assert made.done() == {"out": 0}
    assert made.backlog()[0] == 2
    with pytest.raises(PublishFailed):
        made.check()
    # Nobody waits for a sink that has given up: the next check says why.
    assert made.wait_below(1, 1, WAIT)
    # The next start publishes what was left.
    again = started({"out": store.publisher()}, made.done())
    for output in outputs:
        again.add(output)
    again.stop()
    assert store.published() == [1, 1, 2, 2]


def test_an_error_of_ours_is_raised_as_it_is(store: Store) -> None:
    made = started({"out": Flaky(None, [DiskFull("no space left")] * publishing.TRIES)})
    made.add(store.output(1))
    with pytest.raises(DiskFull, match="no space left"):
        made.stop()


def test_what_a_watcher_raises_stops_publishing_too(store: Store) -> None:
    def dies(point: str, step: int) -> None:
        if (point, step) == ("publishing out", 2):
            raise KeyError("watcher")

    made = started({"out": store.publisher()}, reached=dies)
    for step in (1, 2, 3):
        made.add(store.output(step))
    with pytest.raises(KeyError):
        made.stop()
    assert store.published() == [1, 1]
    assert made.done() == {"out": 1}


def test_sinks_that_are_ahead_are_not_asked_again(store: Store) -> None:
    ahead, behind = Flaky(None, []), Flaky(None, [])
    made = started({"ahead": ahead, "behind": behind}, {"ahead": 2, "behind": 1})
    for step in (2, 3):
        files = [
            StagedFile(name=f"{sink}-{step}", sink=sink, rows=1, bytes=1, checksum="0")
            for sink in ("ahead", "behind", "gone")
        ]
        made.add(output_of(step, files))
    made.stop()
    assert (ahead.asked, behind.asked) == ([3], [2, 3])
    assert made.done() == {"ahead": 3, "behind": 3}


def test_a_step_without_output_is_done_without_asking(store: Store) -> None:
    sink = Flaky(None, [])
    made = started({"out": sink})
    made.add(output_of(1, ()))
    made.stop()
    assert sink.asked == []
    assert made.done() == {"out": 1}


def test_the_backlog_counts_steps_and_bytes_until_they_are_published(store: Store) -> None:
    slow = Flaky(store.publisher(), [])
    slow.gate.clear()
    made = started({"out": slow})
    assert made.wait_below(1, 1, WAIT)
    outputs = [store.output(step, rows=step) for step in (1, 2)]
    for output in outputs:
        made.add(output)
    size = sum(output.bytes for output in outputs)
    assert made.backlog() == (2, size)
    assert not made.wait_below(2, size + 1, 0.01)
    assert not made.wait_below(3, size, 0.01)
    assert made.wait_below(3, size + 1, WAIT)
    slow.gate.set()
    assert made.wait_below(1, size + 1, WAIT)
    assert made.backlog() == (0, 0)
    made.stop()


def test_stopping_publishes_the_rest_first(store: Store) -> None:
    slow = Flaky(store.publisher(), [OSError("not yet")])
    slow.gate.clear()
    made = started({"out": slow})
    for step in (1, 2, 3):
        made.add(store.output(step))
    stopper = threading.Thread(target=made.stop)
    stopper.start()
    slow.gate.set()
    stopper.join(WAIT)
    assert not stopper.is_alive()
    assert store.published() == [1, 1, 2, 2, 3, 3]


def test_output_is_grouped_by_sink_in_the_order_of_the_commit() -> None:
    files = [
        StagedFile(name=name, sink=sink, rows=1, bytes=size, checksum="0")
        for name, sink, size in [("a", "x", 1), ("b", "y", 2), ("c", "x", 4)]
    ]
    output = output_of(7, files)
    assert (output.step, output.bytes) == (7, 7)
    assert {s: [f.name for f in found] for s, found in output.files.items()} == {
        "x": ["a", "c"],
        "y": ["b"],
    }
