"""The literal messages on their way through real tasks; rows move in memory. No Spark here."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.coordinator.settings import Settings
from anabranch.errors import InvalidDataflow, UserFunctionFailed
from anabranch.messages import Acquire, Attempt, Barrier, Collect, Control, Load, Report
from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import Rows
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.rescale.step_moves import moves_of
from anabranch.sinks.staging import read_staged
from anabranch.task.program import Program
from anabranch.task.region_task import RegionTask
from anabranch.task.task_place import TaskPlace
from anabranch.testing.plane.chains import hashes_of
from anabranch.testing.plane.memory_plane import MemoryPlane
from tests.node.engine import Engine
from tests.node.shop import BINS, program

STEPS, LONGEST = 40, 120
pytestmark = pytest.mark.timeout(900)

Event = tuple[Any, ...]


class Seen(ab.Process):
    """Tells which items of a person are new; keeps them outside the handles, in its own form."""

    log: ClassVar[list[Event]] = []

    def __init__(self) -> None:
        self.seen: dict[Any, list[str]] = {}

    def load(self, key: Any, saved: bytes) -> None:
        self.log.append(("load", key.who))
        self.seen[key] = json.loads(saved)

    def save(self, key: Any) -> bytes:
        return json.dumps(self.seen[key]).encode()

    def on_rows(self, key: Any, rows: list[Any]) -> Iterator[Any]:
        self.log.append(("rows", key.who))
        seen = self.seen.setdefault(key, [])
        for row in rows:
            if row.item not in seen:
                seen.append(row.item)
                yield key.who, row.item, len(seen)

    def on_acquire(self, arriving: ab.ArrivingState) -> None:
        taken = arriving.take_state()
        for key, saved in (taken or {}).items():
            self.seen[key] = json.loads(saved)
        self.log.append(
            ("acquire", None if taken is None else {k.who: v for k, v in taken.items()})
        )
        assert arriving.take_state() is None

    def on_interrogate(self, register: ab.KeyRegister) -> None:
        register.add_keys(self.seen)
        register.add_keys(self.seen)
        self.log.append(("interrogate", len(self.seen)))

    def on_scale(self, shares: ab.NewShares) -> None:
        self.log.append(("scale", shares.fewer, [shares.can_stay(key) for key in self.seen]))

    def on_collect(self, leaving: ab.LeavingState) -> None:
        for key in leaving.keys:
            # Its own form for the way: spaces between the items are all that is another.
            leaving.add_state(key, b"something else")
            leaving.add_state(key, json.dumps(self.seen[key], indent=1).encode())
        self.log.append(("collect", [key.who for key in leaving.keys]))

    def on_barrier(self, step: int) -> None:
        self.log.append(("barrier", step))

    def on_shutdown(self, worker: int) -> None:
        self.log.append(("shutdown", worker))


def pages(seed: int, steps: int = STEPS) -> list[list[tuple[str, str]]]:
    chance = random.Random(seed)
    return [
        [(f"p{chance.randrange(30)}", f"i{chance.randrange(25)}") for _ in range(12)]
        for _ in range(steps)
    ]


def expected(given: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[str, str, int]]:
    seen: dict[str, list[str]] = {}
    found = []
    for page in given:
        for who, item in page:
            if item not in seen.setdefault(who, []):
                seen[who].append(item)
                found.append((who, item, len(seen[who])))
    return found


def counting(key: Any, row: Any, seen: Any) -> Any:
    return (key.item, (seen or 0) + 1), (seen or 0) + 1


def flow_of(process: type[ab.Process], given: Sequence[Any], sink: ab.MemorySink) -> Program:
    """Two regions: what the first one hears, the second must not."""
    flow = ab.Dataflow("seen")
    script = [*map(list, given), ab.EOF]
    rows = flow.source("in", ab.ScriptedSource("who string, item string", script))
    new = rows.key_distribute("by-who", "who").process(
        "seen", process, output="who string, item string, n bigint"
    )
    new.sink("new", sink)
    new.key_distribute("by-item", "item").stateful_map(
        "times", counting, state=None, output="item string, n bigint"
    ).sink("counts", ab.MemorySink())
    return program(flow)


class ListeningPlane:
    """A plane whose reports are kept."""

    def __init__(self, made: Program, store: Path) -> None:
        self._plane = MemoryPlane(made, store)
        self.ran: list[tuple[Plan, list[Report]]] = []

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        reports = self._plane.run(plan, states)
        self.ran.append((plan, reports))
        return reports


def has_made(step: int, status: ab.Status) -> bool:
    return status.step >= step


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, list[Event], list[Any]]:
    """Two, four, one workers while rows flow: input, output, what was heard, and the reports.

    A step that is made for the rescale alone may have no rows, and so nobody who knows a key: up
    and down it goes until somebody did.
    """
    given, sink = pages(3, LONGEST), ab.MemorySink()
    Seen.log.clear()
    made, store = flow_of(Seen, given, sink), tmp_path_factory.mktemp("seen")
    plane = ListeningPlane(made, store)
    chosen = RescaleSettings(policy=MovePolicy.BATCHED, budget_bytes=900, prefetch=False)
    settings = Settings(workers=2, rescale=chosen)
    engine = Engine(made, store, plane=plane, settings=settings, paced=True).start()
    while not all_heard(plane.ran):
        for workers in (4, 1):
            after = engine.pipeline.status().step + 3
            assert after < LONGEST - 3, "nobody who knows a key was asked"
            engine.until(partial(has_made, after))
            engine.pipeline.scale(workers)
            engine.until(lambda status: status.rescale is None)
    engine.finish()
    found = sorted(tuple(row.values()) for row in sink.rows())
    return given, found, list(Seen.log), plane.ran


def all_heard(ran: list[tuple[Plan, list[Report]]]) -> bool:
    """Whether keys were registered, and some were told that they stay and some that they go."""
    registered = any(report.registered for _, reports in ran for report in reports)
    stays = {stays for event in Seen.log if event[0] == "scale" for stays in event[2]}
    return registered and stays == {False, True}


def test_state_outside_the_handles_goes_with_its_keys(story: Any) -> None:
    given, found, _, _ = story
    assert found == sorted(expected(given))


def test_what_is_collected_in_a_step_is_acquired_in_the_next_as_it_was_left(story: Any) -> None:
    *_, log, _ = story
    left: dict[str, int] = Counter()
    taken: dict[str, int] = Counter()
    for event in log:
        match event:
            case ("collect", keys):
                left.update(keys)
            case ("acquire", dict(states)):
                taken.update(list(states))
                assert all(b"\n" in state for state in states.values()), "another form came"
    assert left == taken
    assert sum(left.values()) > 20


def test_what_was_taken_is_not_loaded_again(story: Any) -> None:
    *_, log, _ = story
    step: set[str] = set()
    for event in log:
        match event:
            case ("acquire", dict(states)):
                step |= set(states)
            case ("load", who):
                assert who not in step
            case ("barrier", _):
                step.clear()


def test_messages_come_in_the_only_order_around_the_data(story: Any) -> None:
    *_, log, _ = story
    order = ["acquire", "rows", "interrogate", "scale", "collect", "barrier", "shutdown"]
    last = -1
    kinds = Counter(event[0] for event in log)
    assert set(order) <= set(kinds)
    for event in log:
        if event[0] == "load":
            continue
        place = order.index(event[0])
        # A worker's first message follows another's barrier or shutdown.
        assert place >= last or last >= order.index("barrier"), event
        last = place
    assert len({event[1] for event in log if event[0] == "shutdown"} & {0, 1, 2, 3}) >= 3
    scaled = [event for event in log if event[0] == "scale"]
    assert {event[1] for event in scaled} == {False, True}
    assert {stays for event in scaled for stays in event[2]} == {False, True}


def test_ica_messages_never_cross_a_region(story: Any) -> None:
    *_, ran = story
    kinds: dict[str, set[str]] = {"by-who": set(), "by-item": set()}
    for _, reports in ran:
        for report in reports:
            for passed in report.passed:
                assert passed.region in (None, report.attempt.group)
                kinds[report.attempt.group].add(passed.message)
                inside = (
                    ("seen", "new") if report.attempt.group == "by-who" else ("times", "counts")
                )
                assert passed.operators == inside
                assert passed.handled == (("seen",) if report.attempt.group == "by-who" else ())
    every = {"acquire", "interrogate", "scale_up", "scale_down", "collect", "shutdown"}
    assert kinds == {"by-who": every, "by-item": every}


def test_steady_steps_report_no_messages(story: Any) -> None:
    *_, ran = story
    assert any(moves_of(plan) is None for plan, _ in ran)
    for plan, reports in ran:
        if moves_of(plan) is None:
            assert not any(report.passed for report in reports)


def test_registered_keys_are_reported_by_bin(story: Any) -> None:
    *_, ran = story
    asked = [(plan, r) for plan, reports in ran for r in reports if r.registered]
    assert asked
    for plan, report in asked:
        (registered,) = report.registered
        owned = {b for b, w in enumerate(plan.assignment("by-who").workers)}
        assert registered.operator == "seen"
        assert set(registered.bins) <= owned
        assert all(registered.keys)
        told = [p.keys for p in report.passed if p.message == "interrogate"]
        assert told == [sum(registered.keys)]


def test_a_task_has_no_worker_that_has_neither_bins_nor_will_have_any_nor_an_end(
    story: Any,
) -> None:
    *_, ran = story
    for plan, reports in ran:
        moves = moves_of(plan)
        told = set() if moves is None else set(moves.shutdown)
        joining = () if moves is None else moves.joining
        for report in reports:
            group = report.attempt.group
            if group in ("by-who", "by-item"):
                owners = set(plan.assignment(group).workers)
                coming = {worker for region, worker in joining if region == group}
                assert report.attempt.worker in owners | told | coming


def region_task(made: Program, store: Path, *messages: Any) -> RegionTask:
    loads = [Load("seen", (), (0,) * BINS)]
    every = BinSet.every(BINS)
    control = Control(1, 0, "by-who", 0, every, (*loads, *messages))
    return RegionTask(made, store, control, TaskPlace(1, 0, Attempt(1, "by-who", 0, "aa")))


def test_a_message_of_another_region_is_refused(tmp_path: Path) -> None:
    made = flow_of(Seen, pages(1), ab.MemorySink())
    foreign = Collect("by-item", 1, BinSet.of([1]))
    with pytest.raises(ValueError, match="a message for 'by-item' has crossed into 'by-who'"):
        region_task(made, tmp_path, foreign, Barrier(1))


def test_a_method_that_raises_names_itself(tmp_path: Path) -> None:
    class Breaks(Seen):
        def on_acquire(self, arriving: ab.ArrivingState) -> None:
            raise KeyError("not this one")

    made = flow_of(Breaks, pages(1), ab.MemorySink())
    with pytest.raises(UserFunctionFailed, match=r"Breaks.on_acquire .* raised KeyError"):
        region_task(made, tmp_path, Acquire("by-who", 1, BinSet.of([1])), Barrier(1)).run({}, ())


def test_only_what_is_saved_can_be_handed_over() -> None:
    class Handles(ab.Process):
        n = ab.ValueState("n bigint")

        def on_rows(self, key: Any, rows: list[Any]) -> None:
            return None

        def on_collect(self, leaving: ab.LeavingState) -> None:
            return None

    with pytest.raises(InvalidDataflow, match="has on_collect but saves nothing"):
        flow_of(Handles, pages(1), ab.MemorySink())


def test_a_class_handles_the_messages_that_it_has_methods_for() -> None:
    made = flow_of(Seen, pages(1), ab.MemorySink())
    seen = made.operators[min(made.operators)]
    assert isinstance(seen, ProcessOperator)
    assert seen.handles_message(Barrier(1))
    assert not seen.handles_message(Load("seen", (), ()))


class TwoInputs(Seen):
    """Hears everything twice."""

    log: ClassVar[list[Event]] = []


def test_an_operator_with_two_inputs_sees_each_message_twice(tmp_path: Path) -> None:
    TwoInputs.log.clear()
    given, sink = pages(5), ab.MemorySink()
    flow = ab.Dataflow("two")
    script: list[object] = []
    for page in given:
        script += [page, ab.PAUSE]
    rows = flow.source("in", ab.ScriptedSource("who string, item string", [*script, ab.EOF]))
    keyed = rows.key_distribute("by-who", "who")
    ways = [
        keyed.stateful_map(name, marked, state=None, output="who string, item string")
        for name in ("left", "right")
    ]
    ways[0].union(ways[1]).process(
        "seen", TwoInputs, output="who string, item string, n bigint"
    ).sink("new", sink)
    chosen = Settings(
        workers=2, rescale=RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, prefetch=False)
    )
    engine = Engine(program(flow), tmp_path, settings=chosen, paced=True).start()
    engine.until(lambda status: status.step >= 3)
    engine.pipeline.scale(3)
    engine.until(lambda status: status.rescale is None)
    engine.finish()
    assert sorted(tuple(row.values()) for row in sink.rows()) == sorted(expected(given))
    collects = [event for event in TwoInputs.log if event[0] == "collect"]
    acquires = [event for event in TwoInputs.log if event[0] == "acquire"]
    assert collects[::2] == collects[1::2]
    assert any(states for _, states in acquires[::2])
    assert [states for _, states in acquires[1::2]] == [None] * (len(acquires) // 2)


def marked(key: Any, row: Any, seen: Any) -> Any:
    return (key.who, row.item), (seen or 0) + 1


class InOrder(ab.Process):
    """Tells its rows as they come, and hears what the defaults would hear for it."""

    def __init__(self) -> None:
        self.last: dict[Any, int] = {}

    def load(self, key: Any, saved: bytes) -> None:
        self.last[key] = int(saved)

    def save(self, key: Any) -> bytes:
        return str(self.last[key]).encode()

    def on_rows(self, key: Any, rows: list[Any]) -> Iterator[Any]:
        for row in rows:
            self.last[key] = row.n
            yield key.who, row.n

    def on_collect(self, leaving: ab.LeavingState) -> None:
        for key in leaving.keys:
            leaving.add_state(key, self.save(key))


@pytest.mark.parametrize("messages", [(), (Collect("by-who", 1, BinSet.of([1])),)])
def test_r7_rows_come_in_the_order_asked_for_whatever_is_told(
    tmp_path: Path, messages: tuple[Any, ...]
) -> None:
    flow = ab.Dataflow("ordered")
    given = [("ada", 3), ("ada", 1), ("ada", 2)]
    rows = flow.source("in", ab.ScriptedSource("who string, n bigint", [given, ab.EOF]))
    sink = ab.MemorySink()
    rows.key_distribute("by-who", "who").process(
        "seen", InOrder, output="who string, n bigint", order_by="n"
    ).sink("out", sink)
    made = program(flow)
    keys = pa.table({"who": ["ada"] * 3})
    numbers = np.arange(3, dtype=np.int64)
    arrived = Rows(
        keys.append_column("n", pa.array([n for _, n in given])),
        hashes_of(keys),
        keys,
        RowOrder((numbers * 0, numbers, numbers * 0)),
    )
    [seen] = made.operators
    result = region_task(made, tmp_path, *messages, Barrier(1)).run({seen: [arrived]}, ())
    [file] = result.report.staged
    staged = pa.ipc.open_stream(read_staged(tmp_path, file)).read_all()
    assert staged.column("n").to_pylist() == [1, 2, 3]
