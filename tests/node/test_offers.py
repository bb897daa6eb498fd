"""Offers: what waits for a step, from several sources, within a limit."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

import anabranch as ab
from anabranch.dataflow.validate import validate
from anabranch.node.offers import RETRY_SECONDS, Offers
from anabranch.plan.lower import lower
from anabranch.protocol.node import InputLimit
from anabranch.protocol.sources import NO_LIMIT, Batch, Limit
from anabranch.records.plan import Input
from anabranch.records.slices import FileSlice, RangeSlice
from anabranch.sources.files import FileEnumerator


@dataclass
class Counter:
    """An open source of numbered rows, as many as have come; it can add to a step."""

    start: int
    there: int
    report: list[str] = field(default_factory=list)
    fails: int = 0
    clings: bool = False
    hears: bool = True

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        if self.fails:
            self.fails -= 1
            self.start += 1  # whatever it has done counts for nothing
            raise OSError("no line")
        rows = min(self.there - self.start, limit.rows or self.there)
        begin, self.start = self.start, self.start + rows
        slices = (RangeSlice(0, begin, self.start),) if rows else ()
        return Batch(slices, str(self.start).encode(), rows, False)

    more = next

    def files(self) -> frozenset[str]:
        return frozenset()

    def acknowledge(self, position: bytes) -> None:
        if not self.hears:
            raise OSError("no line")
        self.report.append(position.decode())

    def forget(self, positions: Sequence[bytes]) -> None:
        self.report.append(f"forget below {min(map(int, positions))}")

    def close(self) -> None:
        self.report.append("closed")
        if self.clings:
            raise RuntimeError("it does not let go")


@dataclass
class Inattentive:
    """An open source that does not care what is committed, and has nothing."""

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        return Batch((), b"0", 0, True)

    def files(self) -> frozenset[str]:
        return frozenset()


class Bench:
    """Sources by name, and the offers over them."""

    def __init__(
        self, tmp_path: Path, limit: InputLimit, *, read: tuple[Input, ...] = (), **there: int
    ) -> None:
        self.there = there
        self.open_ones: dict[str, Counter] = {}
        self.now = 0.0
        flow = ab.Dataflow("offers")
        for name in there:
            source = ab.ScriptedSource("k string", [[("a",)]])
            flow.source(name, source).sink(f"{name}-out", ab.MemorySink())
        physical = lower(validate(flow.graph()))
        self.offers = Offers(physical, tmp_path, read, (), 0, limit, lambda: self.now, self._open)

    def _open(self, name: str, source: Any, position: bytes | None, log: Any) -> Any:
        if name == "deaf":
            return Inattentive()
        start = int(position) if position else 0
        self.open_ones[name] = Counter(start, self.there[name])
        return self.open_ones[name]

    def arrive(self, name: str, rows: int) -> None:
        self.there[name] += rows
        self.open_ones[name].there += rows


def rows(inputs: tuple[Input, ...]) -> dict[str, list[tuple[int, int]]]:
    return {
        given.source: [(p.start, p.end) for p in given.slices if isinstance(p, RangeSlice)]
        for given in inputs
    }


def names(inputs: tuple[Input, ...]) -> list[str]:
    return [Path(p.path).name for g in inputs for p in g.slices if isinstance(p, FileSlice)]


def test_the_first_source_does_not_take_the_whole_limit(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(rows=10), first=1000, second=1000)
    bench.offers.poll()
    offer = bench.offers.offer(running=False)
    assert offer.by_source == {"first": 5, "second": 5}
    assert (offer.rows, offer.full, offer.ended) == (10, True, False)


def test_what_one_source_leaves_another_may_have(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(rows=10), first=1000, second=1)
    bench.offers.poll()
    bench.offers.poll()
    assert bench.offers.offer(running=False).by_source == {"first": 9, "second": 1}
    assert not bench.offers.poll()


def test_an_offer_grows_until_it_is_taken_and_then_the_next_one_does(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), only=2)
    bench.offers.poll()
    bench.arrive("only", 3)
    bench.offers.poll()
    taken = bench.offers.take(1)
    assert taken is not None
    assert rows(taken) == {"only": [(0, 2), (2, 5)]}
    assert [bytes(given.position) for given in taken] == [b"5"]
    bench.arrive("only", 4)
    bench.offers.poll()
    assert bench.offers.take(1) == taken
    assert bench.offers.take(2) is None
    assert bench.offers.offer(running=True).step == 2
    assert bench.offers.offer(running=False).step == 1
    bench.offers.commit(1, taken, InputLimit())
    following = bench.offers.take(2)
    assert following is not None
    assert rows(following) == {"only": [(5, 9)]}


def test_what_waits_behind_an_empty_offer_that_was_taken_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), only=0)
    bench.offers.poll()
    taken = bench.offers.take(1)
    assert taken is not None
    assert rows(taken) == {"only": []}
    bench.arrive("only", 3)
    bench.offers.poll()
    offer = bench.offers.offer(running=False)
    assert (offer.step, offer.rows) == (1, 3)
    assert bench.offers.take(1) == taken
    bench.offers.commit(1, taken, InputLimit())
    offer = bench.offers.offer(running=False)
    assert (offer.step, offer.rows) == (2, 3)
    following = bench.offers.take(2)
    assert following is not None
    assert rows(following) == {"only": [(0, 3)]}


def test_an_offer_that_is_taken_while_a_directory_is_listed_leaves_the_next_one_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "in"
    place.mkdir()
    flow = ab.Dataflow("offers")
    source = ab.FileSource(place, "json", "k string", max_files_per_step=1)
    flow.source("files", source).sink("out", ab.MemorySink())
    physical = lower(validate(flow.graph()))
    offers = Offers(physical, tmp_path / "store", (), (), 0, InputLimit(), lambda: 0.0)
    (place / "a.json").write_text('{"k": "a"}')
    offers.poll()
    (place / "b.json").write_text('{"k": "b"}')
    list_files, taken = FileEnumerator.more, list[tuple[Input, ...] | None]()

    def taken_meanwhile(enumerator: FileEnumerator, limit: Limit = NO_LIMIT) -> Batch:
        batch = list_files(enumerator, limit)
        taken.append(offers.take(1))
        return batch

    with monkeypatch.context() as patched:
        patched.setattr(FileEnumerator, "more", taken_meanwhile)
        offers.poll()
    assert [names(each or ()) for each in taken] == [["a.json"]]
    offers.poll()
    assert offers.offer(running=True).rows == 1
    offers.commit(1, taken[0] or (), InputLimit())
    assert names(offers.take(2) or ()) == ["b.json"]


def test_only_an_offer_that_nothing_can_be_added_to_is_settled(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(rows=10), only=7)
    bench.offers.poll()
    assert bench.offers.settled(1) is None, "there is room for more"
    bench.arrive("only", 100)
    bench.offers.poll()
    settled = bench.offers.settled(1)
    assert settled is not None
    assert rows(settled) == {"only": [(0, 7), (7, 10)]}
    assert bench.offers.settled(2) is None, "it is another step's"
    assert bench.offers.take(1) == settled


@pytest.mark.parametrize("closed", [True, False])
def test_an_offer_that_somebody_prepared_for_stays_under_a_larger_limit(
    tmp_path: Path, closed: bool
) -> None:
    bench = Bench(tmp_path, InputLimit(rows=10), only=100)
    bench.offers.poll()
    taken = bench.offers.take(1)
    assert taken is not None
    bench.offers.poll()
    settled = bench.offers.settled(2)
    assert settled is not None
    if closed:
        bench.offers.close_offer(2, settled)
    bench.offers.commit(1, taken, InputLimit(rows=15))
    assert bench.offers.poll() != closed
    assert bench.offers.offer(running=False).full
    following = bench.offers.take(2)
    assert following is not None
    assert rows(following) == {"only": [(10, 20)] if closed else [(10, 20), (20, 25)]}
    bench.offers.commit(2, following, InputLimit(rows=15))
    bench.offers.poll()
    assert bench.offers.offer(running=False).rows == 15, "the next one is open again"


def test_an_offer_that_has_grown_since_is_not_closed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(rows=10), only=100)
    bench.offers.poll()
    settled = bench.offers.settled(1)
    assert settled is not None
    bench.offers.limit(InputLimit(rows=12))
    bench.offers.poll()
    bench.offers.close_offer(1, settled)
    bench.offers.limit(InputLimit(rows=20))
    assert bench.offers.poll()
    assert bench.offers.offer(running=False).rows == 20


def test_a_source_that_fails_is_opened_again_where_it_stood(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), bad=2, good=2)
    bench.offers.poll()
    failing = bench.open_ones["bad"]
    failing.fails = 1
    bench.arrive("bad", 1)
    bench.arrive("good", 1)
    assert bench.offers.poll()
    failure = bench.offers.failure
    assert failure is not None
    assert failure.what == "OSError: no line"
    assert failing.report[-1] == "closed"
    assert not bench.offers.poll()
    bench.now += 1
    assert bench.offers.poll()
    assert bench.offers.failure is None
    taken = bench.offers.take(1)
    assert taken is not None
    assert rows(taken) == {"bad": [(0, 2), (2, 3)], "good": [(0, 2), (2, 3)]}


def test_r5_only_what_is_committed_is_acknowledged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), only=2)
    bench.offers.poll()
    report = bench.open_ones["only"].report
    taken = bench.offers.take(1)
    bench.offers.poll()
    assert report == []
    assert taken is not None
    bench.offers.commit(1, taken, InputLimit())
    assert report == [], "the source's own thread tells it"
    bench.offers.poll()
    bench.offers.poll()
    assert report == ["2"]
    bench.offers.close()
    assert report == ["2", "closed"]


def at(name: str, position: str) -> Input:
    return Input(name, (), msgspec.Raw(position.encode()))


def test_r5_only_those_that_want_to_are_told_each_its_own_position(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), a=2, b=2, deaf=0)
    bench.offers.poll()
    for step, committed in (
        (1, (at("a", "1"), at("deaf", "0"), at("gone", "3"))),
        (2, (at("b", "2"), at("a", "4"))),
    ):
        bench.offers.take(step)
        bench.offers.commit(step, committed, InputLimit())
        bench.offers.poll()
    assert bench.offers.failure is None
    assert bench.open_ones["a"].report == ["1", "4"]
    assert bench.open_ones["b"].report == ["2"]


def test_r5_the_last_commit_is_acknowledged_before_the_sources_let_go(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), a=2, b=2)
    bench.offers.poll()
    taken = bench.offers.take(1)
    assert taken is not None
    bench.offers.commit(1, taken, InputLimit())
    report = [bench.open_ones[name].report for name in ("a", "b")]
    bench.offers.acknowledge()
    bench.offers.acknowledge()
    bench.offers.poll()
    bench.offers.close()
    assert report == [["2", "closed"]] * 2


def test_a_source_that_cannot_be_told_of_the_last_commit_keeps_nobody_from_closing(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, InputLimit(), bad=2, good=2)
    bench.offers.poll()
    taken = bench.offers.take(1)
    assert taken is not None
    bench.offers.commit(1, taken, InputLimit())
    bench.open_ones["bad"].hears = False
    bench.offers.acknowledge()
    assert bench.offers.failure is not None
    bench.offers.close()
    assert bench.open_ones["good"].report == ["2", "closed"]
    assert bench.open_ones["bad"].report == ["closed"]


def test_what_was_committed_before_is_acknowledged_by_whoever_opens(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), read=(at("only", "2"),), only=3)
    bench.offers.poll()
    assert bench.open_ones["only"].report == ["2"]
    taken = bench.offers.take(1)
    assert taken is not None
    assert rows(taken) == {"only": [(2, 3)]}


def test_what_every_kept_step_has_passed_is_forgotten(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), a=5, b=5, deaf=0)
    kept = [(at("a", "4"), at("b", "3")), (at("a", "2"),), (at("a", "3"), at("b", "1"))]
    bench.offers.forget(kept)
    assert bench.open_ones["a"].report == ["forget below 2"]
    # The second of the steps has read nothing of b: all of it may be wanted again.
    assert bench.open_ones["b"].report == []


def test_all_let_go_though_some_fail(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), a=1, b=1, c=1)
    for name in ("a", "c"):
        bench.open_ones[name].clings = True
    with pytest.raises(RuntimeError, match="does not let go"):
        bench.offers.close()
    assert [each.report for each in bench.open_ones.values()] == [["closed"]] * 3
    # Nobody is asked for anything any more.
    assert not bench.offers.poll()


def test_a_replay_leaves_what_waits_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), only=2)
    bench.offers.poll()
    for step in (1, 2, 3):
        bench.offers.replayed(step, InputLimit())
    assert bench.offers.offer(running=False).step == 4
    bench.offers.poll()
    assert bench.open_ones["only"].report == []
    taken = bench.offers.take(4)
    assert taken is not None
    assert rows(taken) == {"only": [(0, 2)]}


def test_sources_that_cannot_be_opened_are_let_go(tmp_path: Path) -> None:
    flow = ab.Dataflow("offers")
    for name in ("first", "second"):
        source = ab.ScriptedSource("k string", [[("a",)]])
        flow.source(name, source).sink(f"{name}-out", ab.MemorySink())
    first = Counter(0, 0)

    def open_source(name: str, source: Any, position: bytes | None, log: Any) -> Counter:
        if name == "second":
            raise LookupError(name)
        return first

    physical = lower(validate(flow.graph()))
    with pytest.raises(LookupError):
        Offers(physical, tmp_path, (), (), 0, InputLimit(), lambda: 0.0, open_source)
    assert first.report == ["closed"]


def test_positions_travel_as_they_are(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), only=2)
    bench.offers.poll()
    taken = bench.offers.take(1)
    assert taken is not None
    assert msgspec.json.decode(msgspec.json.encode(taken), type=tuple[Input, ...]) == taken


# -------------------------------------------------------------------------------------- paused


def test_a_paused_source_is_not_asked_and_goes_on_where_it_stood(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), first=2, second=2)
    bench.offers.poll()
    bench.offers.pause(["first"])
    bench.arrive("first", 3)
    bench.arrive("second", 3)
    bench.offers.poll()
    taken = bench.offers.take(1)
    assert taken is not None
    # What it had given before is still read.
    assert rows(taken) == {"first": [(0, 2)], "second": [(0, 2), (2, 5)]}
    bench.offers.poll()
    bench.offers.commit(1, taken, InputLimit())
    bench.offers.poll()
    assert rows(bench.offers.take(2) or ()) == {"second": []}
    bench.offers.commit(2, (), InputLimit())
    bench.offers.pause([])
    bench.offers.poll()
    assert rows(bench.offers.take(3) or ()) == {"first": [(2, 5)], "second": []}


def test_a_paused_source_has_no_share_of_the_limit(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(rows=10), first=1000, second=1000, third=1000)
    bench.offers.pause(["third"])
    bench.offers.poll()
    assert bench.offers.offer(running=False).by_source == {"first": 5, "second": 5}


def test_an_offer_is_full_without_those_that_are_paused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), only=3, deaf=0, other=4)
    bench.offers.poll()
    assert not bench.offers.offer(running=False).full
    bench.offers.pause(["only"])
    assert not bench.offers.offer(running=False).full
    bench.offers.pause(["only", "other"])
    assert bench.offers.offer(running=False).full
    bench.offers.pause([])
    assert not bench.offers.offer(running=False).full


def test_an_offer_has_not_ended_while_a_source_is_paused_that_has_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), deaf=0, other=0)
    bench.offers.pause(["other"])
    bench.offers.poll()
    assert not bench.offers.offer(running=False).ended
    alone = Bench(tmp_path, InputLimit(), deaf=0)
    alone.offers.poll()
    alone.offers.pause(["deaf"])
    assert alone.offers.offer(running=False).ended


def test_r5_a_paused_source_is_told_what_is_committed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), only=2)
    bench.offers.poll()
    taken = bench.offers.take(1)
    assert taken is not None
    bench.offers.pause(["only"])
    bench.offers.commit(1, taken, InputLimit())
    bench.offers.poll()
    assert bench.open_ones["only"].report == ["2"]


def test_names_of_no_source_pause_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(rows=10), only=4)
    bench.offers.pause(["other"])
    bench.offers.poll()
    assert bench.offers.offer(running=False).by_source == {"only": 4}


def test_no_source_waits_for_one_that_failed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), first=1, second=1)
    bench.open_ones["first"].fails = 1
    bench.offers.poll()
    assert bench.offers.failure is not None
    bench.arrive("second", 4)
    bench.offers.poll()
    assert bench.offers.offer(running=False).by_source == {"second": 5}
    assert bench.offers.failure is not None
    bench.now += RETRY_SECONDS
    bench.offers.poll()
    assert bench.offers.failure is None
    assert bench.offers.offer(running=False).by_source == {"first": 1, "second": 5}


def test_no_source_waits_for_one_that_blocks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, InputLimit(), slow=1, quick=1)
    inside, may_go = threading.Event(), threading.Event()
    slow = bench.open_ones["slow"]
    hand_out = slow.next

    def blocking(limit: Limit = NO_LIMIT) -> Batch:
        inside.set()
        assert may_go.wait(20)
        return hand_out(limit)

    slow.next = blocking  # type: ignore[method-assign]
    thread = threading.Thread(target=bench.offers.poll, args=(["slow"],))
    thread.start()
    assert inside.wait(20)
    for step in (1, 2, 3):
        bench.offers.poll(["quick"])
        taken = bench.offers.take(step)
        assert taken is not None
        assert rows(taken) == {"quick": [(step - 1, step)]}
        bench.offers.commit(step, taken, InputLimit())
        bench.arrive("quick", 1)
    assert bench.open_ones["quick"].report == ["1", "2"]
    assert thread.is_alive()
    may_go.set()
    thread.join(20)
    assert bench.offers.offer(running=False).by_source == {"slow": 1}
    bench.offers.close()
    assert slow.report[-1] == bench.open_ones["quick"].report[-1] == "closed"
    assert not bench.offers.poll(), "what was closed is not opened again"
