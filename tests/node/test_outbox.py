"""The outbox: published in step order, again after a while, until it is done or gives up."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import DiskFull, JvmDied
from anabranch.node.outbox import Outbox
from anabranch.node.sink_progress import MOST_AT_ONCE, SinkProgress
from anabranch.protocol.node import Output
from anabranch.protocol.sinks import Publisher, Retry, Sink, SinkContext, StagedStep, retry_of
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sinks.staging import RowsToStage, stage

WAIT = 10.0
TRIES = 5
FIRST_PAUSE = Retry().initial
# The pauses between five tries: 0.1, 0.2, 0.4 and 0.8 seconds.
FIVE_TRIES = Retry(timeout=1.5)


class Flaky:
    """A publisher that fails so many times before it lets another do the work."""

    def __init__(
        self, failures: Sequence[Exception] = (), publisher: Publisher | None = None
    ) -> None:
        self._publisher = publisher
        self.failures = [*failures]
        self.asked: list[int] = []
        self.branches: list[int] = []
        self.files: list[str] = []

    def publish(self, staged: StagedStep) -> None:
        self.asked.append(staged.step)
        self.branches.append(staged.branch)
        self.files += [file.name for file in staged.files]
        if self.failures:
            raise self.failures.pop(0)
        if self._publisher is not None:
            self._publisher.publish(staged)


class Remorseful(Flaky):
    """A publisher that can take back what it has published."""

    def __init__(self) -> None:
        super().__init__()
        self.back: list[int] = []

    def take_back(self, step: int) -> None:
        self.back.append(step)


def _same(publisher: Publisher) -> Publisher:
    return publisher


class Bench:
    """An outbox over some sinks, the time, and the points that it has come to."""

    def __init__(
        self,
        publishers: Mapping[str, Publisher],
        done: Mapping[str, int] | None = None,
        outputs: Sequence[Output] = (),
        reached: Callable[[str, int], None] = lambda point, step: None,
        retry: Retry | None = None,
        back_to: int | None = None,
    ) -> None:
        self.now = 100.0
        self.sinks = list(publishers)
        self.points: list[tuple[str, int]] = []
        self._reached = reached
        known = dict.fromkeys(publishers, 0) if done is None else done
        sinks = [
            SinkProgress(name, partial(_same, each), known[name], retry or Retry(), back_to)
            for name, each in publishers.items()
        ]
        self.outbox = Outbox(sinks, outputs, lambda: self.now, self._point)
        self.outbox.open()

    def _point(self, point: str, step: int) -> None:
        self.points.append((point, step))
        self._reached(point, step)

    def work(self, *sinks: str) -> None:
        """Publish whatever may be published now, to these sinks or all."""
        for sink in sinks or self.sinks:
            while self.outbox.publish_next(sink):
                pass

    def finish(self) -> list[float]:
        """Publish all that can be, however long it takes; gives the pauses."""
        pauses = []
        self.work()
        while left := [p for p in map(self.outbox.pause, self.sinks) if p is not None]:
            pause = min(left)
            pauses.append(pause)
            self.now += pause
            self.work()
        return pauses


class Wholesale(Flaky):
    """A publisher that takes several steps at once."""

    def __init__(self, failures: Sequence[Exception] = ()) -> None:
        super().__init__(failures)
        self.given: list[list[tuple[int, int]]] = []

    def publish_many(self, steps: Sequence[StagedStep]) -> None:
        self.given.append([(staged.branch, staged.step) for staged in steps])
        if self.failures:
            raise self.failures.pop(0)


class Blocked(Flaky):
    """A publisher that does not return from a step before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = threading.Event()
        self.may_go = threading.Event()

    def publish(self, staged: StagedStep) -> None:
        self.inside.set()
        assert self.may_go.wait(WAIT)
        super().publish(staged)


def output(step: int, *sinks: str, branch: int = 0) -> Output:
    return Output(
        step,
        tuple(
            StagedFile(name=f"{sink}-{step}", sink=sink, rows=1, bytes=1, checksum="0")
            for sink in sinks
        ),
        branch,
    )


class Store:
    """A store with a file sink, and steps staged in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sink = FileSink(root / "out")

    def publisher(self) -> Publisher:
        return self.sink.open(SinkContext(self.root, "pipeline", "out"))

    def output(self, step: int) -> Output:
        table = pa.table({"step": pa.array([step] * 2, pa.int64())})
        name = f"stage/out/{step:012d}-0-r-1-0-x.parquet"
        return Output(step, tuple(stage(self.root, [RowsToStage(name, "out", self.sink, table)])))

    def published(self) -> list[int]:
        files = sorted((self.root / "out").glob("step-*.parquet"))
        return [step for path in files for step in pq.read_table(path)["step"].to_pylist()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_steps_are_published_in_order_and_said_to_be_done(store: Store) -> None:
    bench = Bench({"out": store.publisher()})
    for step in (1, 2, 3):
        bench.outbox.add(store.output(step))
    assert not bench.outbox.drained()
    assert bench.finish() == []
    assert store.published() == [1, 1, 2, 2, 3, 3]
    assert bench.outbox.done() == {"out": 3}
    assert bench.outbox.drained()
    assert bench.outbox.staged() == []
    assert bench.points == [(p, s) for s in (1, 2, 3) for p in ("publishing out", "published")]


def test_steps_that_come_in_another_order_are_published_in_theirs(store: Store) -> None:
    sink = Flaky()
    bench = Bench({"out": sink}, outputs=[output(3, "out"), output(1, "out")])
    bench.outbox.add(output(4, "out"))
    bench.outbox.add(output(2, "out"))
    # An output that is told again, as a new leader does, is published once.
    bench.outbox.add(output(2, "out"))
    bench.finish()
    assert sink.asked == [1, 2, 3, 4]
    bench.outbox.add(output(4, "out"))
    bench.finish()
    assert sink.asked == [1, 2, 3, 4]


@pytest.mark.parametrize("error", [OSError("busy"), DiskFull("no space")])
def test_a_sink_that_fails_is_asked_again_after_ever_longer_pauses(
    store: Store, error: Exception
) -> None:
    flaky = Flaky([error] * (TRIES - 1), store.publisher())
    bench = Bench({"out": flaky}, outputs=[store.output(1), store.output(2)])
    assert bench.outbox.publish_next("out")
    assert not bench.outbox.publish_next("out"), "it is not the time yet"
    assert flaky.asked == [1]
    assert bench.outbox.drained(), "nobody who closes waits for it"
    bench.now += FIRST_PAUSE / 2
    assert bench.outbox.pause("out") == pytest.approx(FIRST_PAUSE / 2)
    assert not bench.outbox.publish_next("out")
    pauses = bench.finish()
    assert pauses == pytest.approx(
        [FIRST_PAUSE / 2, *(FIRST_PAUSE * 2**n for n in range(1, TRIES - 1))]
    )
    assert flaky.asked == [1] * TRIES + [2]
    assert bench.outbox.failure is None
    assert store.published() == [1, 1, 2, 2]


def test_every_step_has_all_its_tries(store: Store) -> None:
    flaky = Flaky([OSError("busy")] * (TRIES - 1))
    bench = Bench({"out": flaky}, outputs=[output(1, "out")])
    bench.finish()
    flaky.failures = [OSError("busy")] * (TRIES - 1)
    bench.outbox.add(output(2, "out"))
    bench.finish()
    assert bench.outbox.failure is None
    assert flaky.asked == [1] * TRIES + [2] * TRIES


def test_a_sink_that_goes_on_failing_stops_with_the_reason_and_others_go_on(store: Store) -> None:
    flaky = Flaky([RuntimeError("the door is locked")] * TRIES, store.publisher())
    other = Flaky()
    outputs = [
        Output(step, (*store.output(step).staged, *output(step, "other").staged)) for step in (1, 2)
    ]
    bench = Bench({"out": flaky, "other": other}, outputs=outputs, retry=FIVE_TRIES)
    bench.finish()
    failure = bench.outbox.failure
    assert failure is not None
    assert failure.code == "sink.publish_failed"
    assert failure.what == "Sink 'out' raised RuntimeError: the door is locked"
    assert failure.where == "step 1"
    assert failure.do is not None
    assert "stays staged" in failure.do
    assert flaky.asked == [1] * TRIES
    assert other.asked == [1, 2]
    assert bench.outbox.done() == {"out": 0, "other": 2}
    # Nobody waits for a sink that has given up, but what it lacks is kept.
    assert bench.outbox.drained()
    assert [file.name for file in bench.outbox.staged()] == [
        file.name for each in outputs for file in each.staged
    ]
    assert ("published", 1) not in bench.points
    # The next start publishes what was left.
    again = Bench({"out": store.publisher(), "other": other}, bench.outbox.done(), outputs)
    again.finish()
    assert store.published() == [1, 1, 2, 2]
    assert other.asked == [1, 2]


class Away(Flaky):
    """A publisher whose target is away until a point in time."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self.until = until
        self.bench: Bench | None = None

    def publish(self, staged: StagedStep) -> None:
        assert self.bench is not None
        if self.bench.now < self.until:
            self.asked.append(staged.step)
            raise ConnectionError("the database restarts")
        super().publish(staged)


def test_a_sink_that_is_away_for_minutes_comes_back_and_the_others_go_on_meanwhile() -> None:
    away, other = Away(until=100.0 + 300.0), Flaky()
    outputs = [output(step, "away", "other") for step in range(1, 9)]
    bench = away.bench = Bench({"away": away, "other": other}, outputs=outputs)
    bench.work()
    assert other.asked == list(range(1, 9))
    bench.now += 0.04
    told = bench.outbox.retries()
    assert list(told) == ["away"]
    assert told["away"].failure.what == "Sink 'away' raised ConnectionError: the database restarts"
    assert told["away"].tries == 1
    assert told["away"].seconds == pytest.approx(0.04)
    assert told["away"].next_seconds == pytest.approx(0.06)
    pauses = bench.finish()
    assert max(pauses) == pytest.approx(Retry().maximum)
    assert bench.now < 100.0 + 300.0 + 2 * Retry().maximum
    assert bench.outbox.failure is None
    assert bench.outbox.retries() == {}
    assert away.asked[-8:] == list(range(1, 9))
    assert bench.outbox.done() == {"away": 8, "other": 8}


@pytest.mark.parametrize(
    ("retry", "seconds"), [(Retry(timeout=0), 0.0), (Retry(), 600.0), (Retry(timeout=7.7), 7.7)]
)
def test_a_sink_is_given_up_when_its_time_is_over_and_not_before(
    retry: Retry, seconds: float
) -> None:
    away = Away(until=1e9)
    bench = away.bench = Bench({"away": away}, outputs=[output(1, "away")], retry=retry)
    pauses = bench.finish()
    assert sum(pauses) == pytest.approx(seconds)
    assert bench.outbox.failure is not None
    told = bench.outbox.retries()["away"]
    assert (told.tries, told.next_seconds) == (len(pauses) + 1, None)


def test_a_sink_may_be_retried_for_ever() -> None:
    day = 86_400.0
    away = Away(until=100.0 + day)
    retry = Retry(timeout=None, maximum=10.0, multiplier=1e6)
    bench = away.bench = Bench({"away": away}, outputs=[output(1, "away")], retry=retry)
    assert sum(bench.finish()) >= day
    assert bench.outbox.done() == {"away": 1}


def test_a_new_failure_begins_its_back_off_anew() -> None:
    flaky = Flaky([OSError("busy")] * 3)
    bench = Bench({"out": flaky}, outputs=[output(1, "out")])
    bench.finish()
    flaky.failures = [OSError("busy")]
    bench.outbox.add(output(2, "out"))
    assert bench.finish() == pytest.approx([Retry().initial])


def test_a_sink_that_fails_because_spark_is_dead_is_not_to_blame() -> None:
    def check_plane() -> None:
        raise JvmDied("Spark is dead")

    flaky = Flaky([OSError("no answer")])
    sinks = [SinkProgress("out", lambda: flaky, 0)]
    waiting = [output(1, "out")]
    outbox = Outbox(sinks, waiting, lambda: 0.0, lambda point, step: None, check_plane)
    outbox.open()
    with pytest.raises(JvmDied):
        outbox.publish_next("out")
    assert outbox.retries() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": -1},
        {"initial": 0},
        {"maximum": 0.01},
        {"multiplier": 0.5},
        {"timeout": math.nan},
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Retry(**wrong)


@pytest.mark.parametrize(
    "sink", [lambda r: FileSink("out", retry=r), lambda r: MemorySink(retry=r)]
)
def test_a_sink_says_how_it_is_retried(sink: Callable[[Any], Sink]) -> None:
    assert retry_of(sink(Retry(timeout=7))) == Retry(timeout=7)
    with pytest.raises(TypeError, match=r"retry must be an ab\.Retry, not 7"):
        sink(7)


def test_a_sink_that_is_slow_to_succeed_does_not_hold_up_the_others() -> None:
    slow, quick = Flaky([OSError("busy")] * 2), Flaky()
    outputs = [output(step, "slow", "quick") for step in (1, 2, 3)]
    bench = Bench({"slow": slow, "quick": quick}, outputs=outputs)
    bench.work()
    assert (slow.asked, quick.asked) == ([1], [1, 2, 3])
    assert bench.outbox.done() == {"slow": 0, "quick": 3}
    bench.finish()
    assert slow.asked == [1, 1, 1, 2, 3]
    assert [step for point, step in bench.points if point == "published"] == [1, 2, 3]


def test_an_error_of_ours_is_told_as_it_is() -> None:
    full = Flaky([DiskFull("no space left")] * TRIES)
    bench = Bench({"out": full}, outputs=[output(1, "out")], retry=FIVE_TRIES)
    bench.finish()
    failure = bench.outbox.failure
    assert failure is not None
    assert (failure.code, failure.what) == (DiskFull.code, "no space left")


def test_what_a_watcher_raises_counts_for_nothing(store: Store) -> None:
    dies = {("publishing out", 2)}

    def reached(point: str, step: int) -> None:
        if (point, step) in dies:
            raise KeyError("watcher")

    outputs = [store.output(step) for step in (1, 2, 3)]
    bench = Bench({"out": store.publisher()}, outputs=outputs, reached=reached)
    with pytest.raises(KeyError):
        bench.finish()
    assert store.published() == [1, 1]
    assert bench.outbox.done() == {"out": 1}
    dies.clear()
    bench.finish()
    assert store.published() == [1, 1, 2, 2, 3, 3]


def test_sinks_that_are_ahead_are_not_asked_again() -> None:
    ahead, behind = Flaky(), Flaky()
    outputs = [output(step, "ahead", "behind", "gone") for step in (1, 2, 3)]
    bench = Bench({"ahead": ahead, "behind": behind}, {"ahead": 2, "behind": 1}, outputs)
    # What every sink has does not wait.
    assert {file.name for file in bench.outbox.staged()} == {
        f"{sink}-{step}" for sink in ("ahead", "behind", "gone") for step in (2, 3)
    }
    bench.finish()
    assert (ahead.asked, behind.asked) == ([3], [2, 3])
    assert bench.outbox.done() == {"ahead": 3, "behind": 3}


def test_a_step_without_output_is_done_without_asking() -> None:
    sink = Flaky()
    bench = Bench({"out": sink}, outputs=[output(1), output(2, "gone")])
    bench.finish()
    assert sink.asked == []
    assert bench.outbox.done() == {"out": 2}
    assert bench.points == [("published", 1), ("published", 2)]


def test_each_sink_gets_its_own_files_in_the_order_of_the_commit() -> None:
    first, second = Flaky(), Flaky()
    files = tuple(
        StagedFile(name=name, sink=sink, rows=1, bytes=1, checksum="0")
        for name, sink in [("c", "x"), ("b", "y"), ("a", "x")]
    )
    Bench({"x": first, "y": second}, outputs=[Output(7, files)]).finish()
    assert (first.files, second.files) == (["c", "a"], ["b"])


def test_a_step_of_long_ago_counts_as_published_where_nothing_waits() -> None:
    sink = Flaky()
    bench = Bench({"out": sink})
    bench.outbox.skip(5)
    assert bench.outbox.done() == {"out": 5}
    bench.outbox.skip(4)
    assert bench.outbox.done() == {"out": 5}
    bench.outbox.add(output(6, "out"))
    bench.outbox.skip(7)
    bench.finish()
    assert sink.asked == [6]
    assert bench.outbox.done() == {"out": 6}


def test_without_sinks_nothing_waits() -> None:
    bench = Bench({}, outputs=[output(1, "gone")])
    bench.outbox.add(output(2, "gone"))
    assert bench.outbox.drained()
    assert bench.outbox.staged() == []
    assert bench.finish() == []


def test_those_that_can_take_back_do() -> None:
    able, unable = Remorseful(), Flaky()
    bench = Bench({"able": able, "unable": unable}, {"able": 3, "unable": 3}, back_to=3)
    assert able.back == [3]
    bench.outbox.add(output(4, "able", "unable"))
    bench.finish()
    assert (able.asked, unable.asked) == ([4], [4])


def test_closing_waits_for_the_step_that_is_being_published_and_for_no_other() -> None:
    sink = Blocked()
    bench = Bench({"out": sink}, outputs=[output(1, "out"), output(2, "out")])
    closed: list[dict[str, int]] = []

    def close() -> None:
        bench.outbox.close()
        closed.append(bench.outbox.done())

    publishing, closing = threading.Thread(target=bench.work), threading.Thread(target=close)
    publishing.start()
    assert sink.inside.wait(WAIT)
    closing.start()
    end = time.monotonic() + WAIT
    while not bench.outbox._closed and time.monotonic() < end:
        time.sleep(0.001)
    sink.may_go.set()
    for thread in (publishing, closing):
        thread.join(WAIT)
        assert not thread.is_alive()
    assert closed == [{"out": 1}]
    assert not bench.outbox.publish_next("out")
    assert sink.asked == [1]


def test_closing_leaves_a_sink_alone_that_does_not_return_and_nothing_comes_after_it() -> None:
    sink = Blocked()
    bench = Bench({"out": sink}, outputs=[output(1, "out"), output(2, "out")])
    publishing = threading.Thread(target=bench.work)
    closing = threading.Thread(target=bench.outbox.close, args=(0.01,))
    publishing.start()
    assert sink.inside.wait(WAIT)
    closing.start()
    closing.join(WAIT / 2)
    left_alone = not closing.is_alive() and publishing.is_alive()
    sink.may_go.set()
    publishing.join(WAIT)
    assert left_alone
    assert sink.asked == [1]


def test_a_step_that_waits_to_be_given_to_its_sink_is_not_given_when_all_is_closed() -> None:
    sink = Flaky()

    def close(point: str, step: int) -> None:
        bench.outbox.close(0.01)

    bench = Bench({"out": sink}, outputs=[output(1, "out")], reached=close)
    assert not bench.outbox.publish_next("out")
    assert sink.asked == []
    assert bench.outbox.done() == {"out": 0}


def test_no_sink_waits_for_one_that_does_not_return() -> None:
    blocked, quick = Blocked(), Flaky()
    outputs = [output(step, "blocked", "quick") for step in (1, 2)]
    bench = Bench({"blocked": blocked, "quick": quick}, outputs=outputs)
    publishing = threading.Thread(target=bench.work, args=("blocked",))
    publishing.start()
    assert blocked.inside.wait(WAIT)
    for step in (3, 4):
        bench.outbox.add(output(step, "blocked", "quick"))
        bench.work("quick")
        assert bench.outbox.done() == {"blocked": 0, "quick": step}
    assert quick.asked == [1, 2, 3, 4]
    assert not bench.outbox.drained()
    assert not any(point == "published" for point, _ in bench.points)
    blocked.may_go.set()
    publishing.join(WAIT)
    assert blocked.asked == [1, 2, 3, 4]
    assert bench.outbox.drained()
    assert [step for point, step in bench.points if point == "published"] == [1, 2, 3, 4]


def test_closing_waits_for_every_sink_but_for_all_of_them_together_no_longer_than_said() -> None:
    sinks = {name: Blocked() for name in ("one", "two", "three")}
    bench = Bench(sinks, outputs=[output(1, *sinks), output(2, *sinks)])
    threads = [threading.Thread(target=bench.work, args=(name,)) for name in sinks]
    for thread in threads:
        thread.start()
    assert all(sink.inside.wait(WAIT) for sink in sinks.values())
    begun = time.monotonic()
    bench.outbox.close(0.3)
    assert 0.3 <= time.monotonic() - begun < 0.9
    for sink in sinks.values():
        sink.may_go.set()
    bench.outbox.close()
    assert bench.outbox.done() == dict.fromkeys(sinks, 1)
    for thread in threads:
        thread.join(WAIT)
    assert all(sink.asked == [1] for sink in sinks.values())


def test_a_publisher_knows_the_branch_of_a_step() -> None:
    plain, wholesale = Flaky(), Wholesale()
    outputs = [output(1, "p", "w"), output(2, "p", "w", branch=3)]
    Bench({"p": plain, "w": wholesale}, outputs=outputs).finish()
    assert list(zip(plain.branches, plain.asked, strict=True)) == [(0, 1), (3, 2)]
    assert wholesale.given == [[(0, 1), (3, 2)]]


def test_a_publisher_that_takes_several_steps_gets_all_that_wait_and_them_again() -> None:
    sink = Wholesale([OSError("busy")])
    bench = Bench({"out": sink}, outputs=[output(1, "out"), output(2), output(3, "out")])
    assert bench.outbox.publish_next("out")
    bench.outbox.add(output(4, "out"))
    bench.finish()
    assert sink.given == [[(0, 1), (0, 3)], [(0, 1), (0, 3), (0, 4)]]
    assert sink.asked == []
    assert bench.outbox.done() == {"out": 4}


def test_a_publisher_is_not_given_more_steps_at_once_than_the_bound() -> None:
    sink = Wholesale()
    steps = range(1, MOST_AT_ONCE + 3)
    Bench({"out": sink}, outputs=[output(step, "out") for step in steps]).finish()
    assert [len(given) for given in sink.given] == [MOST_AT_ONCE, 2]
    assert [step for given in sink.given for _, step in given] == list(steps)
