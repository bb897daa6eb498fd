"""The node without threads: every part real but Spark and the coordinator."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import Fenced, NodeUnreachable, PublishFailed
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.protocol.data_plane import RetryStep
from anabranch.protocol.node import (
    CancelOrder,
    CheckOrder,
    Closed,
    CloseOrder,
    Done,
    InputLimit,
    Open,
    Output,
    Running,
    StepOrder,
    SweepOrder,
)
from anabranch.protocol.sinks import Retry, StagedStep
from anabranch.records.plan import Plan
from anabranch.sinks.memory import MemoryPublisher
from anabranch.sources.generator import GeneratorSource
from anabranch.store import retention
from anabranch.store.files import remove_file
from tests.node.core_shop import CancellablePlane, CoreShop
from tests.node.shop import PAGES, scripted


@pytest.fixture
def shop(tmp_path: Path) -> CoreShop:
    return CoreShop(tmp_path)


def test_a_run_without_trouble_gives_what_the_story_gives(shop: CoreShop) -> None:
    before = shop.report
    assert before.state == Closed()
    report = shop.open()
    assert (report.state, report.opened, report.committed) == (Open(0), 1, 0)
    shop.run_all()
    report = shop.report
    assert (report.state, report.committed) == (Open(4), 4)
    assert shop.report.published == {"rows": 4, "counts": 4}
    shop.check()


def test_every_change_is_told_under_a_higher_version(shop: CoreShop) -> None:
    versions = [shop.report.version]
    shop.open()
    versions.append(shop.report.version)
    shop.core.poll_inputs()
    versions.append(shop.report.version)
    plan = shop.plan(shop.core.take(1, 1))
    versions.append(shop.report.version)
    shop.give(StepOrder(plan))
    versions.append(shop.report.version)
    shop.core.run_step()
    versions.append(shop.report.version)
    shop.give(shop.commit_order(shop.write(plan, shop.core.result(1, 1, 0))))
    versions.append(shop.report.version)
    shop.core.publish_next("rows")
    versions.append(shop.report.version)
    assert versions == sorted(set(versions))
    assert shop.report.version == versions[-1]


def test_the_facts_say_what_was_loaded(shop: CoreShop) -> None:
    info = shop.report.info
    assert (info.dataflow, info.code, info.bins) == ("shop", "code", 8)
    assert info.regions == ("by-customer", "by-times")
    assert [shape.operator for shape in info.shapes] == ["seen", "times"]
    assert {(s.name, s.stage_format, s.takes_back) for s in info.sinks} == {
        ("rows", "arrow", True),
        ("counts", "json", True),
    }


def test_a_step_is_told_while_it_runs_and_when_it_is_done(shop: CoreShop) -> None:
    shop.open()
    shop.core.poll_inputs()
    plan = shop.plan(shop.core.take(1, 1))
    shop.give(StepOrder(plan))
    running = shop.report
    assert running.state == Running(1, 0)
    assert shop.core.run_step()
    report = shop.report
    assert (report.state, report.done) == (Open(1), Done(1, 0))
    assert not shop.core.run_step()


def test_the_offer_of_the_next_step_grows_while_one_runs_and_a_taken_one_stays(
    shop: CoreShop,
) -> None:
    shop.open()
    shop.core.poll_inputs()
    first = shop.report.offer
    assert first is not None
    assert (first.step, first.rows, first.by_source) == (1, 4, {"orders": 4})
    taken = shop.core.take(1, 1)
    shop.core.poll_inputs()
    assert shop.report.offer == first, "a coordinator that comes back finds it as it was"
    assert shop.core.take(1, 1) == taken
    shop.give(StepOrder(shop.plan(taken)))
    growing = shop.report.offer
    assert growing is not None
    assert (growing.step, growing.rows) == (2, 3)
    with pytest.raises(NodeUnreachable):
        shop.core.take(1, 2)


def test_an_offer_ends_with_its_sources(tmp_path: Path) -> None:
    shop = CoreShop(tmp_path, scripted(PAGES[:1]))
    shop.open()
    assert shop.report.offer is not None
    assert not shop.report.offer.ended
    shop.core.poll_inputs()
    assert shop.report.offer.ended
    assert shop.one_step()
    assert shop.report.offer is not None
    assert (shop.report.offer.rows, shop.report.offer.ended) == (0, True)


def test_a_failed_step_leaves_the_node_where_it_was(shop: CoreShop) -> None:
    shop.open()
    shop.one_step()
    assert isinstance(shop.plane, CancellablePlane)

    def refuse(plan: object) -> None:
        raise RuntimeError("no")

    shop.plane.before = refuse
    shop.core.poll_inputs()
    plan = shop.plan(shop.core.take(1, 2))
    shop.give(StepOrder(plan))
    assert shop.core.run_step()
    failed = shop.report.failed_step
    assert failed is not None
    assert (failed.step, failed.revision, failed.failure.code) == (2, 0, "step.failed")
    assert shop.report.state == Open(1)
    shop.give(StepOrder(plan))
    assert not shop.core.run_step(), "taken once for a step and revision"
    shop.plane.before = lambda plan: None
    revised = shop.plan(plan.inputs, revision=1)
    shop.give(shop.commit_order(shop.write(revised, shop.run(revised))))
    assert shop.report.failed_step is None
    shop.run_all()
    shop.check()


def test_attempts_that_never_agree_fail_the_step_and_once_is_forgiven(shop: CoreShop) -> None:
    assert isinstance(shop.plane, CancellablePlane)
    shop.open()
    shop.plane.mixed = 2
    assert shop.one_step()
    shop.plane.mixed = 3
    shop.core.poll_inputs()
    shop.give(StepOrder(shop.plan(shop.core.take(1, 2))))
    shop.core.run_step()
    assert shop.report.failed_step is not None
    assert shop.report.failed_step.failure.code == "step.attempts_disagree"


def test_a_step_that_was_given_up_for_no_fault_of_its_own_is_run_again(shop: CoreShop) -> None:
    asked: list[int] = []

    def give_up_twice(plan: Plan) -> None:
        asked.append(plan.step)
        if len(asked) < 3:
            raise RetryStep("an executor was lost")

    assert isinstance(shop.plane, CancellablePlane)
    shop.open()
    shop.plane.before = give_up_twice
    assert shop.one_step()
    assert asked == [1, 1, 1]
    asked.append(-1)
    shop.run_all()
    shop.check()


def test_a_higher_revision_runs_again_from_the_state_before(shop: CoreShop) -> None:
    shop.open()
    shop.one_step()
    shop.core.poll_inputs()
    plan = shop.plan(shop.core.take(1, 2))
    shop.run(plan)
    shop.workers = 3
    revised = shop.plan(plan.inputs, revision=1)
    result = shop.run(revised)
    assert shop.report.done == Done(2, 1)
    with pytest.raises(NodeUnreachable):
        shop.core.result(1, 2, 0)
    shop.give(shop.commit_order(shop.write(revised, result)))
    shop.run_all()
    shop.check()


def test_a_lower_revision_changes_nothing(shop: CoreShop) -> None:
    shop.open()
    shop.core.poll_inputs()
    inputs = shop.core.take(1, 1)
    shop.run(shop.plan(inputs, revision=2))
    shop.give(StepOrder(shop.plan(inputs, revision=1)))
    assert not shop.core.run_step()
    assert shop.report.done == Done(1, 2)


def test_a_cancelled_step_fails_as_cancelled_before_and_while_it_runs(shop: CoreShop) -> None:
    plane = shop.plane
    assert isinstance(plane, CancellablePlane)
    shop.open()
    shop.core.poll_inputs()
    inputs = shop.core.take(1, 1)
    shop.give(StepOrder(shop.plan(inputs)))
    shop.give(CancelOrder(7))
    assert plane.cancels == 0
    shop.give(CancelOrder(1))
    assert plane.cancels == 1
    shop.core.run_step()
    assert plane.ran == []
    assert shop.report.failed_step is not None
    assert shop.report.failed_step.failure.code == "step.cancelled"

    def cancelled(plan: object) -> None:
        shop.give(CancelOrder(1))
        raise RuntimeError("the job was cancelled")

    plane.before = cancelled
    shop.give(StepOrder(shop.plan(inputs, revision=1)))
    shop.core.run_step()
    assert shop.report.failed_step.revision == 1
    assert shop.report.failed_step.failure.code == "step.cancelled"
    assert not shop.core.cancel_pending()


def test_a_higher_revision_replaces_the_one_that_runs(shop: CoreShop) -> None:
    plane = shop.plane
    assert isinstance(plane, CancellablePlane)
    shop.open()
    shop.core.poll_inputs()
    inputs = shop.core.take(1, 1)
    plane.before = lambda plan: shop.give(StepOrder(shop.plan(inputs, revision=1)))
    shop.give(StepOrder(shop.plan(inputs)))
    shop.core.run_step()
    assert plane.cancels == 1
    plane.before = lambda plan: None
    running = shop.report
    assert running.state == Running(1, 1)
    shop.core.run_step()
    report = shop.report
    assert (report.state, report.done) == (Open(1), Done(1, 1))


def test_nothing_is_published_or_seen_before_the_commit(shop: CoreShop) -> None:
    shop.open()
    shop.core.poll_inputs()
    plan = shop.plan(shop.core.take(1, 1))
    done = shop.write(plan, shop.run(plan))
    assert not shop.publish_some()
    assert shop.core.snapshot.step == 0
    shop.give(shop.commit_order(done))
    assert shop.core.snapshot.step == 1
    shop.publish_all()
    assert list(shop.rows.steps()) == [1]


def test_the_next_step_waits_for_the_commit(shop: CoreShop) -> None:
    shop.open()
    shop.core.poll_inputs()
    plan = shop.plan(shop.core.take(1, 1))
    done = shop.write(plan, shop.run(plan))
    shop.give(StepOrder(shop.plan(())))
    assert not shop.core.run_step()
    shop.give(shop.commit_order(done))
    assert shop.one_step()


def test_orders_of_a_lower_leader_are_refused(shop: CoreShop) -> None:
    shop.open()
    shop.leader = 5
    assert shop.report.leader == 5
    for call in (
        lambda: shop.core.report(4),
        lambda: shop.core.take(4, 1),
        lambda: shop.core.result(4, 1, 0),
        lambda: shop.core.take_order(4, CloseOrder(exit=True)),
    ):
        with pytest.raises(Fenced):
            call()
    assert not shop.core.close_pending()
    assert shop.report.state == Open(0)


def test_opening_again_goes_on_where_the_journal_ends(shop: CoreShop) -> None:
    shop.open()
    shop.one_step()
    shop.one_step()
    shop.new_core()
    assert shop.open().state == Open(2)
    shop.run_all()
    shop.check()


def test_input_that_is_planned_already_is_not_offered_again(shop: CoreShop) -> None:
    shop.open()
    shop.one_step()
    shop.core.poll_inputs()
    plan = shop.plan(shop.core.take(1, 2))
    shop.new_core()
    shop.open(pending=plan.inputs)
    shop.core.poll_inputs()
    assert shop.report.offer is not None
    assert (shop.report.offer.step, shop.report.offer.rows) == (3, 4)
    assert shop.core.take(1, 2) == plan.inputs
    shop.give(shop.commit_order(shop.write(plan, shop.run(plan))))
    shop.run_all()
    shop.check()


def test_a_replay_publishes_and_acknowledges_nothing_twice(shop: CoreShop) -> None:
    shop.open()
    for _ in range(3):
        shop.one_step()
    shop.publish_all()
    old = list(shop.journal)
    published = dict.fromkeys(shop.program.sinks, 3)
    shop.new_core()
    assert shop.open(at=1, published=published).state == Open(1)
    for done in old[1:]:
        shop.give(StepOrder(done.plan))
        assert shop.core.run_step()
        again = shop.core.result(1, done.plan.step, 0)
        assert again.counts == done.result.counts
        shop.give(shop.commit_order(done, replayed=True))
        assert not shop.publish_some()
    assert shop.report.published == published
    shop.run_all()
    shop.check()


def test_a_rewind_takes_back_what_later_steps_published(tmp_path: Path) -> None:
    shop = CoreShop(tmp_path)
    shop.open()
    shop.run_all()
    assert len(list((tmp_path / "counts").glob("step-*"))) >= 4
    shop.journal = shop.journal[:2]
    positions = shop.journal[-1].positions
    report = shop.open(rewound=2, positions=positions, outputs=(), published={"rows": 4})
    assert report.published == {"rows": 2, "counts": 2}
    assert list(shop.rows.steps()) == [1, 2]
    assert not list((tmp_path / "counts").glob("step-000000000003*"))
    assert not (tmp_path / "counts" / "_manifest" / "step-000000000003.json").exists()
    shop.run_all()
    shop.check()


def test_one_who_was_replaced_cannot_take_back_what_was_published(tmp_path: Path) -> None:
    shop = CoreShop(tmp_path)
    shop.open()
    shop.run_all()
    published = sorted((tmp_path / "counts").rglob("*"))
    for host in ("first", "second"):
        Leadership(FileDirectory(shop.store / "journal")).lead(True, host, 1, 0)
    # It was stopped right after it had gone back to step 2, and leads a node that was just
    # started, which has never heard of the other one.
    shop.new_core()
    shop.journal = shop.journal[:2]
    positions = shop.journal[-1].positions
    report = shop.open(rewound=2, positions=positions, outputs=(), published={"rows": 4})
    assert report.state == Closed()
    assert report.failed_open is not None
    assert report.failed_open.code == "coordinator.fenced"
    assert len(shop.rows.steps()) == 4
    assert sorted((tmp_path / "counts").rglob("*")) == published
    shop.leader = 2
    assert shop.open(rewound=2, positions=positions, outputs=()).state == Open(2)


def test_a_rewind_whose_state_is_computed_again_takes_back_no_more_than_that(
    tmp_path: Path,
) -> None:
    """The state of step 2 is damaged: step 1 is opened, and step 2 stays published."""
    shop = CoreShop(tmp_path)
    shop.open()
    shop.run_all()
    shop.journal = shop.journal[:2]
    report = shop.open(at=1, rewound=2, outputs=(), published={"rows": 4, "counts": 2})
    assert report.state == Open(1)
    assert report.published == {"rows": 2, "counts": 2}
    assert list(shop.rows.steps()) == [1, 2]
    assert list((tmp_path / "counts").glob("step-000000000002*"))
    assert not list((tmp_path / "counts").glob("step-000000000003*"))


def test_a_missing_file_of_the_state_is_told(shop: CoreShop) -> None:
    shop.open()
    shop.one_step()
    run = shop.journal[-1].result.states[0].runs[0].run
    path = shop.store / run.name
    data = path.read_bytes()
    damaged = bytes([*data[:-1], data[-1] ^ 1])
    path.chmod(0o600)
    path.write_bytes(damaged)
    assert shop.open().failed_open is None
    failed = shop.open(whole=True)
    assert failed.failed_open is not None
    assert (failed.state, failed.failed_open.code) == (Closed(), "store.corrupt_run")
    path.write_bytes(data + b"x")
    report = shop.open()
    assert report.failed_open is not None
    assert report.failed_open.code == "store.corrupt_run"
    path.unlink()
    report = shop.open()
    assert report.failed_open is not None
    assert (report.failed_open.code, report.opened) == ("store.missing_run", shop.number)
    path.write_bytes(data)
    assert shop.open(whole=True).failed_open is None


def test_a_dataflow_that_does_not_fit_is_told(shop: CoreShop) -> None:
    shop.open()
    shop.one_step()
    report = shop.open(published={"other": 0}, outputs=(gone_output(shop),))
    assert report.failed_open is not None
    assert report.failed_open.code == "directory.changed_dataflow"


def gone_output(shop: CoreShop) -> Output:
    staged = shop.journal[-1].result.staged[0]
    renamed = type(staged)(
        name=staged.name, sink="other", rows=1, bytes=staged.bytes, checksum=staged.checksum
    )
    return Output(1, (renamed,))


def test_a_check_tells_how_far_it_is_and_what_is_missing(shop: CoreShop) -> None:
    shop.open()
    shop.run_all()
    states = shop.journal[-1].result.states
    order = CheckOrder(4, states, whole=True)
    shop.give(order)
    assert shop.report.checked is None
    while shop.core.check_next():
        pass
    checked = shop.report.checked
    assert checked is not None
    assert checked.failure is None
    assert checked.files == checked.files_done > 0
    shop.give(order)
    assert not shop.core.check_next()
    (shop.store / states[0].runs[0].run.name).unlink()
    shop.give(CheckOrder(4, states, ()))
    while shop.core.check_next():
        pass
    assert shop.report.checked is not None
    assert shop.report.checked.failure is not None
    assert shop.report.checked.failure.code == "store.missing_run"


def test_another_leader_does_not_get_the_check_of_the_one_before(shop: CoreShop) -> None:
    shop.open()
    shop.run_all()
    states = shop.journal[-1].result.states
    order = CheckOrder(4, states)
    shop.give(order)
    while shop.core.check_next():
        pass
    (shop.store / states[0].runs[0].run.name).unlink()
    shop.leader += 1
    assert shop.report.checked is None
    shop.give(order)
    while shop.core.check_next():
        pass
    checked = shop.report.checked
    assert checked is not None
    assert checked.failure is not None
    assert checked.failure.code == "store.missing_run"


def sweep_order(shop: CoreShop, *kept: int) -> SweepOrder:
    states = tuple(shop.journal[step - 1].result.states for step in kept)
    return SweepOrder(shop.step, states, (), (), ("code",))


def test_a_sweep_leaves_what_a_replay_has_made_although_no_order_names_it(shop: CoreShop) -> None:
    """The files of a replayed step are of a step that is long over, and in no commit yet."""
    shop.open()
    for _ in range(3):
        shop.one_step()
    shop.new_core()
    shop.open(at=1, published=dict.fromkeys(shop.program.sinks, 3))
    second, third = shop.journal[1:]
    shop.give(StepOrder(second.plan))
    assert shop.core.run_step()
    shop.give(shop.commit_order(second, replayed=True))
    shop.give(sweep_order(shop, 1, 3))
    assert shop.core.sweep()
    shop.now += 121
    assert shop.core.sweep()
    shop.give(StepOrder(third.plan))
    assert shop.core.run_step()
    assert shop.core.result(1, 3, 0).counts == third.result.counts


def test_a_sweep_removes_what_nobody_names_after_the_grace(shop: CoreShop) -> None:
    shop.open()
    shop.run_all()
    every = {p for p in shop.store.rglob("*") if p.is_file()}
    kept = {
        shop.store / listed.run.name
        for step in (2, 4)
        for state in shop.journal[step - 1].result.states
        for listed in state.runs
    }
    shop.give(sweep_order(shop, 2, 4))
    assert shop.core.sweep()
    assert {p for p in shop.store.rglob("*") if p.is_file()} == every
    assert not shop.core.sweep()
    shop.now += 121
    assert shop.core.sweep()
    left = {p for p in shop.store.rglob("*") if p.is_file()}
    assert kept <= left
    assert {p for p in left if "run" in p.parts} == kept
    assert not [p for p in left if "stage" in p.parts]


def test_two_that_sweep_at_once_take_turns(shop: CoreShop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.open()
    shop.run_all()
    shop.give(sweep_order(shop, 4))
    shop.core.sweep()
    shop.now += 121
    others: list[threading.Thread] = []

    def removed_meanwhile(path: str) -> bool:
        if not others:
            shop.give(sweep_order(shop, 4))
            others.append(threading.Thread(target=shop.core.sweep))
            others[0].start()
            others[0].join(0.5)
        return remove_file(path)

    monkeypatch.setattr(retention, "remove_file", removed_meanwhile)
    assert shop.core.sweep()
    (other,) = others
    other.join(10)
    assert not other.is_alive()
    left = {p for p in shop.store.rglob("*") if p.is_file() and "run" in p.parts}
    assert left == {shop.store / r.run.name for s in shop.journal[3].result.states for r in s.runs}


def test_nothing_is_swept_once_the_sources_have_let_go(shop: CoreShop) -> None:
    shop.open()
    shop.run_all()
    shop.give(sweep_order(shop, 4))
    shop.core.sweep()
    shop.now += 121
    opened = shop.core._opened
    assert opened is not None
    opened.offers.close()
    before = sorted(shop.store.rglob("*"))
    assert not shop.core.sweep()
    assert sorted(shop.store.rglob("*")) == before


def test_output_that_waits_is_not_swept(shop: CoreShop) -> None:
    shop.open()
    while shop.one_step():
        pass
    shop.give(sweep_order(shop, 4))
    shop.core.sweep()
    shop.now += 121
    shop.core.sweep()
    shop.publish_all()
    shop.check()


def test_closing_publishes_first_and_lets_go(shop: CoreShop) -> None:
    shop.open()
    shop.one_step()
    shop.give(CloseOrder(exit=True))
    assert not shop.core.close_pending()
    shop.publish_all()
    assert shop.core.close_pending()
    assert (shop.report.state, shop.core.exit_asked) == (Closed(), True)
    assert shop.report.published == {"rows": 1, "counts": 1}
    assert shop.core.snapshot.step == 1


def test_closing_acknowledges_the_last_commit_before_it_lets_go(shop: CoreShop) -> None:
    report: list[bytes] = []

    class Attentive:
        def __init__(self, inner: Any) -> None:
            self.next, self.files = inner.next, inner.files

        def acknowledge(self, position: bytes) -> None:
            report.append(position)

        def close(self) -> None:
            report.append(b"closed")

    shop.new_core(open_source=lambda name, source, at, log: Attentive(source.open(at, log)))
    shop.open()
    shop.one_step()
    shop.publish_all()
    assert report == [], "nobody has looked at the sources since the commit"
    shop.give(CloseOrder(exit=True))
    assert shop.core.close_pending()
    [read] = shop.journal[-1].positions
    assert report == [bytes(read.position), b"closed"]


def test_late_orders_for_something_else_that_was_open_change_nothing(shop: CoreShop) -> None:
    shop.open()
    shop.core.poll_inputs()
    plan = shop.plan(shop.core.take(1, 1))
    shop.open()
    shop.give(StepOrder(plan, opened=1))
    shop.give(CloseOrder(opened=1))
    assert not shop.core.run_step()
    assert not shop.core.close_pending()
    shop.give(StepOrder(plan, opened=2))
    assert shop.core.run_step()


def test_a_source_that_fails_is_told_and_loses_nothing(shop: CoreShop) -> None:
    class Flaky:
        def __init__(self) -> None:
            self.down = False

        def open(self, name: str, source: object, position: object, log: object) -> object:
            inner = source.open(position, log)  # type: ignore[attr-defined]
            flaky = self

            class Enumerator:
                def next(self, limit: object) -> object:
                    batch = inner.next(limit)
                    if flaky.down:
                        raise OSError("the line is dead")
                    return batch

                def files(self) -> frozenset[str]:
                    return frozenset()

            return Enumerator()

    flaky = Flaky()
    shop.new_core(open_source=flaky.open)
    shop.open()
    shop.one_step()
    flaky.down = True
    # What waits for the next step was asked for before the line died.
    while shop.one_step():
        pass
    failure = shop.report.source_failure
    assert failure is not None
    assert "the line is dead" in failure.what
    flaky.down = False
    assert not shop.core.poll_inputs(), "it is left alone for a while"
    shop.now += 2
    assert shop.core.poll_inputs()
    assert shop.report.source_failure is None
    shop.run_all()
    shop.check()


def test_a_sink_that_fails_is_tried_again_and_then_told(
    shop: CoreShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    away: list[str] = ["rows"]
    publish = MemoryPublisher.publish

    def sometimes(self: MemoryPublisher, staged: StagedStep) -> None:
        if self.context.sink in away:
            raise PublishFailed("The database is away")
        publish(self, staged)

    monkeypatch.setattr(MemoryPublisher, "publish", sometimes)
    shop.open()
    shop.one_step()
    shop.publish_all()
    assert shop.report.published == {"rows": 0, "counts": 1}
    assert shop.report.sink_failure is None
    away.clear()
    shop.now += 1
    shop.publish_all()
    assert shop.report.published == {"rows": 1, "counts": 1}
    shop.one_step()
    away.append("rows")
    shop.publish_all()
    shop.now += Retry().initial / 2
    shop.publish_all()
    told = shop.report.sink_retries["rows"]
    assert (told.failure.code, told.tries) == ("sink.publish_failed", 1)
    assert told.next_seconds == pytest.approx(Retry().initial / 2)
    shop.now += 599.0
    shop.publish_all()
    assert shop.report.sink_failure is None
    shop.now += 1.0
    shop.publish_all()
    assert shop.report.sink_failure is not None
    assert shop.report.sink_failure.code == "sink.publish_failed"
    assert shop.report.published == {"rows": 1, "counts": 2}
    assert not shop.publish_some()


def test_a_limit_bounds_the_offer(tmp_path: Path) -> None:
    def rows(partition: int, start: int, end: int) -> dict[str, list[object]]:
        numbers = range(start, end)
        return {"customer": [f"c{n % 3}" for n in numbers], "amount": [1 for _ in numbers]}

    source = GeneratorSource(rows, "customer string, amount bigint", rows_per_step=1000)
    shop = CoreShop(tmp_path, source)
    shop.open(limit=InputLimit(rows=10))
    shop.core.poll_inputs()
    assert shop.report.offer is not None
    assert (shop.report.offer.rows, shop.report.offer.full) == (10, True)
    shop.one_step()
    shop.give(shop.commit_order(shop.journal[-1]))
    shop.core.poll_inputs()
    assert shop.report.offer is not None
    assert shop.report.offer.rows == 1000
