"""Timers in ``process``: when they fire, in which order, and what becomes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.dataflow.validate import validate
from anabranch.errors import EarlierTime, InvalidDataflow, UserFunctionFailed
from anabranch.operators.dead_letter import RowFailure
from anabranch.records.times import END_OF_TIME, TOO_FAR, to_datetime
from tests.dataflow.fakes import sink, source
from tests.operators.timer_model import signed_hash
from tests.operators.timer_steps import Given, Steps, operator

SECOND = 10**6


class Alarms(ab.Process):
    """Sets and cancels timers as its rows say, and tells what fires."""

    count = ab.ValueState("n bigint")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        for row in rows:
            if row.op == "set":
                self.notify_at(row.arg, row.name)
            elif row.op == "step":
                self.notify_at(row.arg, row.name, clock="step")
            elif row.op == "cancel":
                self.cancel(row.name)
            elif row.op == "count":
                self.count.set((self.count.get() or 0) + 1)
        if rows[-1].op == "say":
            return key.who, f"rows at {us(self.frontier)}"
        return None

    def on_notify(self, key: Any, at: datetime, name: str) -> Any:
        return key.who, f"{name}@{us(at)} n={self.count.get()} D={us(self.frontier)}"


def us(at: datetime) -> int:
    if at.year == 1:
        return -1
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def steps(tmp_path: Path, process: type[ab.Process] = Alarms, **options: Any) -> Steps:
    return Steps(operator(process, **options), tmp_path)


def test_a_timer_fires_when_the_frontier_has_passed_its_time_and_before_the_rows(
    tmp_path: Path,
) -> None:
    run = steps(tmp_path)
    assert run.step([Given("a", 5, "set", "x", 20)]) == []
    assert run.timers() == {("a", "x"): 21}
    assert run.harness.holds.min() == 20
    # A row of the timer's own time may still come.
    assert run.step([Given("a", 6, "count")], until=20) == []
    assert run.step([Given("a", 21, "count")], until=21) == [("a", "x@20 n=1 D=21", 20)]
    assert run.timers() == {}
    assert run.step(until=40) == []


def test_timers_fire_in_the_order_of_their_times_whatever_the_order_they_were_set_in(
    tmp_path: Path,
) -> None:
    run = steps(tmp_path)
    first, second = sorted("ab", key=signed_hash)
    given = [Given(who, 1, "set", name, at) for who in "ab" for name, at in (("z", 9), ("y", 3))]
    run.step([*given, Given(first, 1, "set", "x", 9)])
    found = [(who, text.split(" ")[0], time) for who, text, time in run.step(until=10)]
    assert found == [
        *((first, "y@3", 3), (second, "y@3", 3)),
        *((first, "x@9", 9), (first, "z@9", 9), (second, "z@9", 9)),
    ]


def test_setting_a_timer_again_moves_it_and_cancelling_removes_it(tmp_path: Path) -> None:
    run = steps(tmp_path)
    run.step([Given("a", 1, "set", "x", 5), Given("a", 1, "set", "x", 8)])
    run.step([Given("b", 1, "set", "x", 5), Given("c", 1, "set", "x", 5)])
    assert run.timers() == {("a", "x"): 9, ("b", "x"): 6, ("c", "x"): 6}
    run.step([Given("b", 1, "cancel", "x"), Given("c", 1, "set", "x", 20)], until=3)
    assert run.step([Given("a", 6, "cancel", "never set")], until=7) == []
    assert [text for _, text, _ in run.step(until=30)] == ["x@8 n=None D=9", "x@20 n=None D=21"]


def test_rows_that_notifications_made_come_before_the_timers(tmp_path: Path) -> None:
    run = steps(tmp_path)
    run.step([Given(who, 1, "set", "x", 5) for who in "abc"], until=2)
    fired = [Given("a", 3, "cancel", "x"), Given("b", 3, "set", "x", 90), Given("c", 3, "count")]
    found = run.step([Given("c", 12, "say")], until=10, fired=[*fired, Given("d", 4, "say")])
    # They are at the frontier of the step before, and so is what they make.
    assert found == [("d", "rows at 2", 4), ("c", "x@5 n=1 D=6", 5), ("c", "rows at 10", 12)]
    assert run.timers() == {("b", "x"): 91}


def test_a_timer_set_by_a_fired_row_fires_in_the_same_step(tmp_path: Path) -> None:
    run = steps(tmp_path)
    run.step(until=2)
    assert run.step(until=10, fired=[Given("a", 3, "set", "x", 7)]) == [("a", "x@7 n=None D=8", 7)]
    assert run.timers() == {}


def test_a_time_that_has_passed_fires_in_the_next_step_at_the_frontier_and_is_counted(
    tmp_path: Path,
) -> None:
    run = steps(tmp_path)
    run.step([Given("b", 1, "set", "x", 50)], until=50)
    assert run.step([Given("a", 40, "set", "x", 30)]) == []
    assert len(run.operator.overdue) == 1
    assert run.harness.holds.min() == 50
    # The frontier stands still, and the timer of its very time stays.
    assert run.step() == [("a", "x@30 n=None D=50", 50)]
    assert run.step() == []
    assert run.timers() == {("b", "x"): 51}
    run.step([Given("a", 40, "set", "x", 30), Given("a", 40, "set", "w", 49)])
    found = run.step(until=60)
    assert [each for each in found if each[0] == "a"] == [
        ("a", "x@30 n=None D=51", 50),
        ("a", "w@49 n=None D=51", 50),
    ]
    assert [each for each in found if each[0] == "b"] == [("b", "x@50 n=None D=51", 50)]
    assert run.timers() == {}


def test_late_rows_reach_the_class_and_rows_too_far_ahead_do_not(tmp_path: Path) -> None:
    run = steps(tmp_path)
    given = [Given("a", 10, "say"), Given("b", TOO_FAR, "say")]
    assert run.step(given, until=99) == [("a", "rows at 99", 10)]
    assert run.late is not None
    assert run.late.values.column("who").to_pylist() == ["b"]


class Chain(Alarms):
    """Sets the next timer in ``on_notify``."""

    def on_notify(self, key: Any, at: datetime, name: str) -> Any:
        if name == "tick":
            self.notify_at(at + timedelta(microseconds=10), "tick")
        if name == "back":
            self.notify_at(at - timedelta(microseconds=10), "forth")
        if name == "again":
            self.notify_at(at, "again")
        if name == "remind":
            self.notify_at(at + timedelta(days=1), "cancel")
        return super().on_notify(key, at, name)


def test_a_timer_set_by_a_timer_fires_in_the_same_step_if_it_is_due_and_in_its_order(
    tmp_path: Path,
) -> None:
    run = steps(tmp_path, Chain)
    run.step([Given("a", 1, "set", "tick", 10), Given("a", 1, "set", "x", 25)])
    texts = [(text.split(" ")[0], time) for _, text, time in run.step(until=31)]
    assert texts == [("tick@10", 10), ("tick@20", 20), ("x@25", 25), ("tick@30", 30)]
    assert run.timers() == {("a", "tick"): 41}


def test_thousands_of_ticks_may_fall_due_at_once(tmp_path: Path) -> None:
    run = steps(tmp_path, Chain)
    run.step([Given("a", 1, "set", "tick", 10)])
    assert len(run.step(until=50_000)) == 4999


def test_a_timer_for_a_time_before_the_timer_that_sets_it_comes_right_after_it(
    tmp_path: Path,
) -> None:
    run = steps(tmp_path, Chain)
    run.step([Given("a", 1, "set", "back", 20), Given("a", 1, "set", "x", 21)])
    found = [(text, time) for _, text, time in run.step(until=31)]
    assert found == [
        ("back@20 n=None D=21", 20),
        ("forth@10 n=None D=21", 20),
        ("x@21 n=None D=22", 21),
    ]


def test_a_timer_that_sets_itself_for_its_own_time_is_an_error_that_names_operator_and_key(
    tmp_path: Path,
) -> None:
    run = steps(tmp_path, Chain)
    run.step([Given("ada", 1, "set", "again", 20)])
    with pytest.raises(UserFunctionFailed) as error:
        run.step(until=31)
    for part in ("operator alarms", "Key(who='ada')", "on_notify", "'again'", "1,000 times"):
        assert part in str(error.value)


def test_when_the_input_has_ended_every_timer_fires_and_a_chain_comes_to_an_end(
    tmp_path: Path,
) -> None:
    run = steps(tmp_path, Chain)
    given = [Given("a", 1, "set", name, 10) for name in ("tick", "remind")]
    run.step([*given, Given("a", 1, "step", "x", 10**15)], until=5)
    found = [(text.split(" ")[0], time) for _, text, time in run.step(until=END_OF_TIME)]
    day = 86_400 * SECOND
    # The one by the clock of the steps has no event time: the frontier's, as far as it came.
    assert found == [
        *(("remind@10", 10), ("tick@10", 10)),
        *((f"cancel@{10 + day}", 10 + day), ("x@1000000000000000", 11 + day)),
    ]
    assert run.timers() == {}


def test_timers_by_the_clock_of_the_steps(tmp_path: Path) -> None:
    run = steps(tmp_path)
    start = 100 * SECOND
    run.step([Given("a", 5, "step", "x", start + 7)], until=3, now_ns=start * 1000)
    assert run.timers("step") == {("a", "x"): (start + 7) * 1000}
    assert run.harness.holds.min() > END_OF_TIME
    assert run.step(until=4, now_ns=(start + 6) * 1000) == []
    # Its output has the time of the frontier.
    found = run.step(until=9, now_ns=(start + 7) * 1000)
    assert found == [("a", f"x@{start + 7} n=None D=9", 9)]
    assert run.step(until=10, now_ns=(start + 8) * 1000) == []
    assert run.timers("step") == {}
    run.step([Given("a", 5, "step", "x", 1)])
    assert len(run.operator.overdue) == 1
    assert run.step(now_ns=(start + 9) * 1000) == [("a", "x@1 n=None D=10", 10)]


def test_a_name_has_a_timer_for_each_clock_and_cancel_takes_both(tmp_path: Path) -> None:
    run = steps(tmp_path)
    for who in "ab":
        run.step([Given(who, 1, "set", "x", 9), Given(who, 1, "step", "x", 10**9)])
    run.step([Given("a", 1, "cancel", "x")])
    assert run.timers() == {("b", "x"): 10}
    assert run.timers("step") == {("b", "x"): 10**12}


def test_a_process_without_event_time_has_timers_by_the_clock_of_the_steps(tmp_path: Path) -> None:
    class Clocked(Alarms):
        def on_notify(self, key: Any, at: datetime, name: str) -> Any:
            return key.who, f"{name} at {us(self.now)}"

    run = Steps(operator(Clocked, timed=False), tmp_path)
    assert set(run.harness.states) == {"alarms.count", "alarms.step-timers"}
    run.step([Given("a", 0, "step", "x", 7)], now_ns=5_000)
    assert run.step([Given("a", 0, "cancel", "y")], now_ns=7_000) == [("a", "x at 7", None)]
    for op, text in (("set", 'clock="step"'), ("say", "no event time")):
        with pytest.raises(UserFunctionFailed, match=text):
            run.step([Given("a", 0, op, "x", 3)])


def test_notify_at_without_on_notify_is_an_error_that_names_the_operator(tmp_path: Path) -> None:
    class Deaf(ab.Process):
        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            self.notify_at(5, "x")

    with pytest.raises(UserFunctionFailed, match="needs a method on_notify") as error:
        steps(tmp_path, Deaf).step([Given("a", 1)])
    assert "operator alarms, Key(who='a')" in str(error.value)


@pytest.mark.parametrize(
    ("at", "name", "clock", "text"),
    [
        ("soon", "x", "event", "TypeError: a time is a datetime"),
        (True, "x", "event", "TypeError: a time is a datetime"),
        (1 << 60, "x", "event", "ValueError: 1152921504606846976 microseconds"),
        (5, 5, "event", "TypeError: the name of a timer is text"),
        (5, "x", "wall", 'ValueError: a clock is "event" or "step"'),
    ],
)
def test_what_is_no_timer_is_refused(
    at: Any, name: Any, clock: Any, text: str, tmp_path: Path
) -> None:
    class Wrong(Alarms):
        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            self.notify_at(at, name, clock=clock)

    with pytest.raises(UserFunctionFailed, match=text):
        steps(tmp_path, Wrong).step([Given("a", 1)])


def test_datetimes_may_have_a_zone_or_none(tmp_path: Path) -> None:
    class Zones(Alarms):
        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            self.notify_at(datetime(1970, 1, 1, 0, 0, 1), "naive")  # noqa: DTZ001
            self.notify_at(datetime.fromisoformat("1970-01-01T02:00:02+02:00"), "zone")

    run = steps(tmp_path, Zones)
    run.step([Given("a", 1)])
    assert run.timers() == {("a", "naive"): SECOND + 1, ("a", "zone"): 2 * SECOND + 1}


class Ends(Alarms):
    """Tells the end."""

    def on_end(self, key: Any) -> Any:
        return key.who, f"end n={self.count.get()} D={us(self.frontier)}"


def test_the_end_comes_after_the_timers_for_keys_that_have_state_then(tmp_path: Path) -> None:
    class Counts(Ends):
        def on_notify(self, key: Any, at: datetime, name: str) -> Any:
            self.count.set(None if name == "forget" else 9)

    run = steps(tmp_path, Counts)
    run.step([Given(who, 1, "count") for who in "abc"])
    run.step([Given("a", 1, "set", "forget", 20), Given("d", 1, "set", "remember", 20)], until=7)
    found = run.step(until=END_OF_TIME, fired=[Given("e", 8, "count")])
    assert sorted(found) == [
        ("b", "end n=1 D=7", 7),
        ("c", "end n=1 D=7", 7),
        ("d", "end n=9 D=21", 21),
        ("e", "end n=1 D=7", 7),
    ]


def test_no_timer_can_be_set_at_the_end(tmp_path: Path) -> None:
    class Sets(Ends):
        def on_end(self, key: Any) -> Any:
            self.notify_at(5, "x")

    run = steps(tmp_path, Sets)
    run.step([Given("a", 1, "count")])
    with pytest.raises(UserFunctionFailed, match="the input has ended"):
        run.step(until=END_OF_TIME)


class Clumsy(Alarms):
    """Fails where it is told to, after it has changed what it could."""

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        made = super().on_rows(key, rows)
        if any(row.op == "fail" for row in rows):
            raise ValueError("rows")
        return made

    def on_notify(self, key: Any, at: datetime, name: str) -> Any:
        made = super().on_notify(key, at, name)
        self.count.set((self.count.get() or 0) + 10)
        self.notify_at(at + timedelta(microseconds=5), "next")
        self.cancel("other")
        if name == "fail":
            raise ValueError("timer")
        return made


def test_a_call_that_fails_takes_its_timers_and_its_state_back(tmp_path: Path) -> None:
    run = steps(tmp_path, Clumsy)
    dead: list[RowFailure] = []
    run.operator.dead = dead
    run.step([Given("a", 1, "set", "x", 5), Given("a", 1, "count")])
    run.step([Given("a", 1, "cancel", "x"), Given("a", 1, "set", "y", 6), Given("a", 1, "fail")])
    assert [letter.row.op for letter in dead] == ["cancel", "set", "fail"]
    assert run.timers() == {("a", "x"): 6}
    run.step([Given("a", 1, "set", name, at) for name, at in (("fail", 7), ("other", 90))])
    dead.clear()
    # x counts, sets "next" and cancels "other"; "fail" would do so once more.
    found = run.step(until=8)
    assert [text.split(" ")[0] for _, text, _ in found] == ["x@5"]
    assert [(each.operator, each.key.who, each.row) for each in dead] == [
        ("alarms", "a", {"at": to_datetime(7), "timer": "fail"})
    ]
    assert run.timers() == {("a", "next"): 11}
    assert [row["v_n"] for row in run.harness.scan("alarms.count")] == [11]


def test_an_endless_timer_becomes_a_dead_letter(tmp_path: Path) -> None:
    run = steps(tmp_path, Chain)
    run.operator.dead = []
    run.step([Given("a", 1, "set", "again", 5)])
    assert len(run.step(until=9)) == 1000
    assert len(run.operator.dead) == 1
    assert "1,000 times" in run.operator.dead[0].error
    assert run.timers() == {}


class Dated(ab.Process):
    """Gives its output a time of its own."""

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        for row in rows:
            if row.op == "set":
                self.notify_at(row.arg, row.name)
        return [(key.who, None if row.arg < 0 else row.arg) for row in rows if row.op == "say"]

    def on_notify(self, key: Any, at: datetime, name: str) -> Any:
        return key.who, us(at) + int(name)


def dated(tmp_path: Path) -> Steps:
    return steps(tmp_path, Dated, output="who string, at timestamp", time="At")


def test_a_column_gives_the_times_of_the_output(tmp_path: Path) -> None:
    run = dated(tmp_path)
    rows = [Given("a", 4, "say", arg=9), Given("a", 3, "say", arg=3), Given("a", 3, "set", "5", 20)]
    assert [time for *_, time in run.step(rows)] == [9, 3]
    assert [time for *_, time in run.step(until=30)] == [25]


@pytest.mark.parametrize("row", [Given("ada", 3, "say", arg=2), Given("ada", 3)])
def test_output_earlier_than_what_it_was_made_of_is_refused(row: Given, tmp_path: Path) -> None:
    run = dated(tmp_path)
    run.step([Given("ada", 3, "set", "-1", 9)])
    until = 4 if row.op else 10
    with pytest.raises(EarlierTime) as error:
        run.step([row], until)
    assert "operator alarms, Key(who='ada')" in str(error.value)
    assert "1970-01-01T00:00:00.000" in str(error.value)


def test_output_without_its_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ab.AnabranchError, match="NULL in 'at', which is its event time"):
        dated(tmp_path).step([Given("a", 3, "say", arg=-1)])


def test_output_with_an_impossible_time_is_a_dead_letter_if_calls_may_fail(tmp_path: Path) -> None:
    run = dated(tmp_path)
    run.operator.dead = []
    given = [Given("a", 3, "say", arg=2), Given("b", 3, "say", arg=5), Given("c", 3, "say", arg=-1)]
    assert [who for who, *_ in run.step(given)] == ["b"]
    assert [letter.key.who for letter in run.operator.dead] in (["a", "c"], ["c", "a"])


def test_without_such_a_column_output_has_the_latest_time_of_its_rows(tmp_path: Path) -> None:
    run = steps(tmp_path)
    given = [Given("a", 9), Given("a", 4, "say"), Given("b", 3, "say")]
    assert sorted(time for *_, time in run.step(given)) == [3, 9]


def test_the_names_of_timer_states_are_taken() -> None:
    flow = ab.Dataflow("flow")
    rows = flow.source("rows", source("who string")).key_distribute("by-who", "who")
    rows.process("alarms", Alarms, output="who string, text string").sink("out", sink())
    rows.aggregate("alarms.step-timers", n="count(*)").sink("more", sink())
    with pytest.raises(InvalidDataflow, match=r"alarms\.step-timers"):
        validate(flow.graph())
