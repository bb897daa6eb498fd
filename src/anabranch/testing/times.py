"""A scenario with event time: windows, sessions, timers and a join, over partitions out of step.

Clicks come out of order, each partition behind the one before it, and some come too late. Which of
them do depends on the steps in which they are read, never on steps without input: so the reference
is computed from what each step has read, and results are compared over all steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.handles import Process, ValueState
from anabranch.dataflow.windows import session, tumbling
from anabranch.records.times import EARLIEST, END_OF_TIME
from anabranch.sinks.memory import MemorySink
from anabranch.sources.generator import GeneratorSource
from anabranch.testing.scenario import Outcome, Positions, Row, Scenario

PARTITIONS = 3
CLICKS_PER_STEP = 6
ORDERS_PER_STEP = 2
STEPS = 10
NAMES = "abcde"

SECOND = 1_000_000
LATENESS = 2 * SECOND
WINDOW = 5 * SECOND
GAP = 2 * SECOND
QUIET = 4 * SECOND
APART = 2 * SECOND
"""How far apart an order and its clicks may be."""

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_BEGAN_US = int(_BEGAN.timestamp()) * SECOND


def times(script: int = 0, steps: int = STEPS) -> Scenario:
    """Clicks and orders of so many steps, the same for the same ``script``."""
    model = TimesModel(Random(script), steps)

    def make(directory: Path) -> Dataflow:
        flow = Dataflow("times")
        clicks = flow.source("clicks", _source(model.clicks, CLICKS_PER_STEP))
        orders = flow.source("orders", _source(model.orders, ORDERS_PER_STEP))
        timed = clicks.assign_timestamps("at", lateness=timedelta(microseconds=LATENESS))
        keyed = timed.key_distribute("by-who", "who")
        visits = keyed.window(tumbling("5 seconds")).aggregate("visits", n="count(*)", m="max(id)")
        visits.sink("visits-out", MemorySink())
        visits.late.select("id").sink("late", MemorySink())
        (
            visits.key_distribute("by-window", closed="window_end")
            .window(tumbling("5 seconds"))
            .aggregate("busy", n="sum(n)")
            .select("closed", "n")
            .sink("busy-out", MemorySink())
        )
        sessions = keyed.window(session("2 seconds")).aggregate("sessions", n="count(*)")
        sessions.sink("sessions-out", MemorySink())
        sessions.late.select("id").sink("late-sessions", MemorySink())
        keyed.process("quiet", Quiet, output="who string, at timestamp, last bigint").sink(
            "quiet-out", MemorySink()
        )
        (
            orders.select("id as number", "who", "at as placed")
            .assign_timestamps("placed", lateness="1 day")
            .key_by("who")
            .join(
                "bought",
                clicks.assign_timestamps("at", lateness="1 day").key_by("who"),
                region="by-buyer",
                within=("-2 seconds", "2 seconds"),
                how="left",
            )
            .select("number", "id")
            .sink("bought-out", MemorySink())
        )
        return flow

    return Scenario(make, model.check)


class Quiet(Process):
    """Tells of everybody who has not clicked for four seconds after the last click that came."""

    last = ValueState("id bigint")

    def on_rows(self, key: Any, rows: Any) -> None:  # noqa: ANN401
        """Note the last click, and wait."""
        self.last.set(rows[-1].id)
        self.notify_at(rows[-1].at + timedelta(microseconds=QUIET), "quiet")

    def on_notify(self, key: Any, at: Any, name: str) -> Row:  # noqa: ANN401
        """It has been quiet."""
        return key.who, at, self.last.get()


@dataclass(frozen=True, slots=True)
class Event:
    """A click or an order."""

    who: str
    at: int


def _source(events: Sequence[Event], per_step: int) -> GeneratorSource:
    """The events, dealt out to the partitions in turn; their number is their id."""

    def rows(partition: int, start: int, end: int) -> dict[str, list[Any]]:
        ids = [number * PARTITIONS + partition for number in range(start, end)]
        return {
            "id": ids,
            "who": [events[id].who for id in ids],
            "at": [_moment(events[id].at) for id in ids],
        }

    return GeneratorSource(
        rows,
        "id bigint, who string, at timestamp",
        partitions=PARTITIONS,
        rows_per_step=per_step,
        rows=len(events),
    )


@dataclass(frozen=True, slots=True)
class ClickStep:
    """The clicks that a step has read, in their order, and the frontier that they came with."""

    frontier: int
    ids: tuple[int, ...]


@dataclass(slots=True)
class OpenSession:
    """Clicks of one person that are no further apart than the gap."""

    start: int
    end: int
    count: int


class TimesModel:
    """What must come of the clicks and orders."""

    def __init__(self, random: Random, steps: int) -> None:
        """Draw who clicks and orders when."""
        self.clicks = list(_drawn(random, steps * CLICKS_PER_STEP, pace=SECOND // 2))
        self.orders = list(_drawn(random, steps * ORDERS_PER_STEP, pace=SECOND * 3 // 2))

    def check(self, outcome: Outcome) -> None:
        """Compare all output."""
        steps = list(self._steps(outcome))
        assert sum(len(step.ids) for step in steps) == len(self.clicks), "R6: clicks are missing"
        windows, late = self._windows(steps)
        _compare(outcome, "visits-out", [_window(*each) for each in windows.items()])
        _compare(outcome, "late", [(id,) for id in late])
        busy = Counter[int]()
        for (_, end), ids in windows.items():
            busy[end] += len(ids)
        _compare(outcome, "busy-out", [(_moment(end), n) for end, n in busy.items()])
        sessions, late = self._sessions(steps)
        _compare(outcome, "sessions-out", sessions)
        _compare(outcome, "late-sessions", [(id,) for id in late])
        _compare(outcome, "quiet-out", list(self._quiet(steps)))
        _compare(outcome, "bought-out", list(self._bought()))

    def _steps(self, outcome: Outcome) -> Iterator[ClickStep]:
        """What each step has read; its frontier is that of the clicks read before it."""
        latest = [EARLIEST] * PARTITIONS
        done = 0
        for step in outcome.steps:
            reached = _read(outcome.positions[step])
            ids = sorted(range(done, reached), key=lambda id: (id % PARTITIONS, id))
            if ids:
                yield ClickStep(min(latest) - LATENESS, tuple(ids))
            for id in ids:
                latest[id % PARTITIONS] = max(latest[id % PARTITIONS], self.clicks[id].at)
            done = reached

    def _windows(
        self, steps: Sequence[ClickStep]
    ) -> tuple[dict[tuple[str, int], list[int]], list[int]]:
        """The clicks of each person and window, by its end; and those that came too late."""
        found: dict[tuple[str, int], list[int]] = {}
        late = []
        for step in steps:
            for id in step.ids:
                click = self.clicks[id]
                end = click.at // WINDOW * WINDOW + WINDOW
                if end <= step.frontier:
                    late.append(id)
                else:
                    found.setdefault((click.who, end), []).append(id)
        return found, late

    def _sessions(self, steps: Sequence[ClickStep]) -> tuple[list[Row], list[int]]:
        """The sessions of each person, and the clicks that came too late for any."""
        opened: dict[str, list[OpenSession]] = {who: [] for who in NAMES}
        closed: list[Row] = []
        late: list[int] = []
        for step in [*steps, ClickStep(END_OF_TIME, ())]:
            for who, kept in opened.items():
                closed += [_session(who, one) for one in kept if one.end <= step.frontier]
                ids = [id for id in step.ids if self.clicks[id].who == who]
                came = [(self.clicks[id].at, id) for id in ids]
                alive = [one for one in kept if one.end > step.frontier]
                opened[who], missed = _merged(alive, came, step.frontier)
                late += missed
        return closed, late

    def _quiet(self, steps: Sequence[ClickStep]) -> Iterator[Row]:
        """Who was quiet, as of which time and after which click."""
        waiting: dict[str, tuple[int, int]] = {}
        for step in [*steps, ClickStep(END_OF_TIME, ())]:
            for who, (at, last) in list(waiting.items()):
                if at < step.frontier:
                    del waiting[who]
                    yield who, _moment(at), last
            for id in step.ids:
                waiting[self.clicks[id].who] = (self.clicks[id].at + QUIET, id)

    def _bought(self) -> Iterator[Row]:
        """Each order with every click near it; with none, alone."""
        for number, order in enumerate(self.orders):
            near = [
                id
                for id, click in enumerate(self.clicks)
                if click.who == order.who and abs(click.at - order.at) <= APART
            ]
            yield from ((number, id) for id in near)
            if not near:
                yield number, None


def _drawn(random: Random, count: int, pace: int) -> Iterator[Event]:
    """Events that are up to three seconds late; later partitions are behind by more."""
    for number in range(count):
        behind = random.randint(0, 3 * SECOND) + number % PARTITIONS * SECOND
        yield Event(random.choice(NAMES), _BEGAN_US + number * pace - behind)


def _merged(
    alive: Sequence[OpenSession], came: Sequence[tuple[int, int]], frontier: int
) -> tuple[list[OpenSession], list[int]]:
    """Open sessions with clicks that came, and the clicks that are in none that is still open."""
    pieces = [(one.start, one.end, one.count, -1) for one in alive]
    pieces += [(at, at + GAP, 1, id) for at, id in came]
    groups: list[list[tuple[int, int, int, int]]] = []
    for piece in sorted(pieces):
        if groups and piece[0] <= max(end for _, end, _, _ in groups[-1]):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    found, late = [], []
    for group in groups:
        end = max(end for _, end, _, _ in group)
        if end > frontier:
            count = sum(count for _, _, count, _ in group)
            found.append(OpenSession(group[0][0], end, count))
        else:
            late += [id for *_, id in group if id >= 0]
    return found, late


def _compare(outcome: Outcome, sink: str, wanted: Sequence[Row]) -> None:
    found = Counter(row for rows in outcome.output[sink].values() for row in rows)
    missing, extra = Counter(wanted) - found, found - Counter(wanted)
    rule = "R9" if extra else "R6"
    wrong = bool(missing or extra)
    assert not wrong, f"{rule}: sink {sink!r} lacks {missing} and has {extra}"


def _window(key: tuple[str, int], ids: Sequence[int]) -> Row:
    who, end = key
    return who, _moment(end - WINDOW), _moment(end), len(ids), max(ids)


def _session(who: str, one: OpenSession) -> Row:
    return who, _moment(one.start), _moment(one.end), one.count


def _moment(time: int) -> datetime:
    return _BEGAN + timedelta(microseconds=time - _BEGAN_US)


def _read(positions: Positions) -> int:
    """How many clicks were read."""
    clicks: Mapping[str, int] = positions.get("clicks", {})
    return clicks.get("rows", 0)
