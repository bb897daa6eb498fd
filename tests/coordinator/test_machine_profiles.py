"""Profiles that are asked for: which step carries the request, and who is told what of it."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.coordinator.effects import Answer, Effect, WritePlan
from anabranch.coordinator.events import (
    Asked,
    CommitWritten,
    InputTaken,
    NodeLost,
    PlanWritten,
    ResultFetched,
)
from anabranch.coordinator.jobs.profile import MOST_WAITING
from anabranch.coordinator.operations import (
    PausePipeline,
    ProfileWorker,
    ShutDownPipeline,
    StartPipeline,
)
from anabranch.protocol.node import Closed, Done, Failure, Open, OpenOrder, StepOrder
from anabranch.records.plan import Input, Plan, decode_plan
from anabranch.records.profiles import ProfileKind, ProfileRequest, TaskProfile
from tests.coordinator.bench import Bench, commit, journal, order_of, plan, read, result

TIME = ProfileRequest(ProfileKind.TIME, 1)
HEAP = ProfileRequest(ProfileKind.HEAP, 0, "by-name")
FOUND = (TaskProfile(ProfileKind.TIME, "by-name", 1, 0.5),)


def answers(effects: list[Effect]) -> dict[int, Answer]:
    return {each.number: each for each in effects if isinstance(each, Answer)}


def at_step_7() -> Bench:
    bench = Bench()
    bench.open(journal(7))
    return bench


def planned(bench: Bench, number: int, inputs: tuple[Input, ...] | None = None) -> Plan:
    """The plan that the machine makes of the next step."""
    bench.report(Open(number - 1), offer=bench.offer(number), published={"out": number - 1})
    effects = bench.send(InputTaken(number, read(number) if inputs is None else inputs))
    (written,) = [each for each in effects if isinstance(each, WritePlan)]
    return written.plan


def committed(bench: Bench, made: Plan, profiles: tuple[TaskProfile, ...] = ()) -> list[Effect]:
    """What the commit of a plan leads to."""
    bench.send(PlanWritten(made))
    before = {"published": {"out": made.step - 1}}
    bench.report(Open(made.step), done=Done(made.step, made.revision), **before)
    bench.send(ResultFetched(result(made.step, made.revision, profiles=profiles)))
    return bench.send(CommitWritten(commit(made.step), ours=True))


def test_the_next_plan_carries_the_request_and_its_commit_answers() -> None:
    bench = at_step_7()
    assert not answers(bench.send(Asked(1, ProfileWorker(TIME))))
    made = planned(bench, 8)
    assert made.profile == TIME
    assert made.profile_of("by-name", 1) is ProfileKind.TIME
    assert made.profile_of("by-name", 0) is None
    found = answers(committed(bench, made, FOUND))
    assert found == {1: Answer(1, None, 8, FOUND)}
    assert planned(bench, 9).profile is msgspec.UNSET


def test_a_plan_without_a_request_does_not_mention_it() -> None:
    body = msgspec.json.encode(plan(8))
    assert b"profile" not in body
    requested = msgspec.structs.replace(plan(8), profile=HEAP)
    assert decode_plan(msgspec.json.encode(requested)) == requested
    assert decode_plan(body).profile is msgspec.UNSET


def test_a_step_that_reads_nothing_is_not_looked_at() -> None:
    bench = at_step_7()
    bench.send(Asked(1, ProfileWorker(TIME)))
    nothing = tuple(msgspec.structs.replace(each, slices=()) for each in read(8))
    made = planned(bench, 8, nothing)
    assert made.profile is msgspec.UNSET
    assert not answers(committed(bench, made))
    assert planned(bench, 9).profile == TIME


def test_one_request_a_step_and_equal_ones_together() -> None:
    bench = at_step_7()
    for number, request in ((1, TIME), (2, HEAP), (3, TIME)):
        bench.send(Asked(number, ProfileWorker(request)))
    assert [number for number, _ in bench.machine.memory.profile.queue] == [1, 2, 3]
    first = planned(bench, 8)
    assert first.profile == TIME
    assert set(answers(committed(bench, first, FOUND))) == {1, 3}
    second = planned(bench, 9)
    assert second.profile == HEAP
    assert set(answers(committed(bench, second, FOUND))) == {2}


def test_a_worker_that_had_no_task_is_told() -> None:
    bench = at_step_7()
    bench.send(Asked(1, ProfileWorker(TIME)))
    failure = answers(committed(bench, planned(bench, 8)))[1].failure
    assert failure is not None
    assert failure.what == "Worker 1 had no task in step 8"


@pytest.mark.parametrize(
    ("asked", "what", "do"),
    [
        (ProfileRequest(ProfileKind.TIME, 2), "There is no worker 2", "Workers: 0, 1."),
        (
            ProfileRequest(ProfileKind.TIME, 0, "by-age"),
            "There is no region 'by-age'",
            "Regions with workers: by-name.",
        ),
    ],
)
def test_who_is_not_there_cannot_be_looked_at(asked: ProfileRequest, what: str, do: str) -> None:
    failure = answers(at_step_7().send(Asked(1, ProfileWorker(asked))))[1].failure
    assert failure == Failure("operation.refused", what, do=do)


def test_before_the_first_step_and_in_a_pause_it_is_refused() -> None:
    bench = Bench()
    bench.open(journal(0))
    failure = answers(bench.send(Asked(1, ProfileWorker(TIME))))[1].failure
    assert failure is not None
    assert failure.what == "There is no committed step yet"
    bench = at_step_7()
    bench.send(Asked(1, PausePipeline()))
    failure = answers(bench.send(Asked(2, ProfileWorker(TIME))))[2].failure
    assert failure is not None
    assert failure.what == "The pipeline is paused"
    bench.send(Asked(3, StartPipeline()))
    assert not answers(bench.send(Asked(4, ProfileWorker(TIME))))


def test_who_waits_when_a_pause_begins_is_told() -> None:
    bench = at_step_7()
    bench.send(Asked(1, ProfileWorker(TIME)))
    found = answers(bench.send(Asked(2, PausePipeline())))
    assert found[2].failure is None
    assert found[1].failure is not None
    assert "was paused" in found[1].failure.what
    assert bench.machine.memory.profile.queue == []


def test_who_waits_at_the_end_is_told() -> None:
    bench = at_step_7()
    bench.send(Asked(1, ProfileWorker(TIME)))
    effects = bench.send(Asked(2, ShutDownPipeline(at_once=True)))
    effects += bench.report(Closed())
    found = answers(effects)
    assert found[2].failure is None
    assert found[1].failure is not None
    assert found[1].failure.what == "The pipeline has been shut down"


def test_there_is_an_end_to_those_who_wait() -> None:
    bench = at_step_7()
    for number in range(MOST_WAITING):
        assert not answers(bench.send(Asked(number, ProfileWorker(TIME))))
    failure = answers(bench.send(Asked(MOST_WAITING, ProfileWorker(HEAP))))[MOST_WAITING].failure
    assert failure is not None
    assert failure.what.startswith(f"{MOST_WAITING} profiles wait")


def test_a_plan_that_runs_again_on_another_node_is_looked_at_again() -> None:
    bench = at_step_7()
    bench.send(Asked(1, ProfileWorker(TIME)))
    made = planned(bench, 8)
    bench.send(PlanWritten(made))
    bench.send(NodeLost(Failure("node.lost", "gone")))
    bench.boot, bench.version = "b2", 0
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    again = order_of(bench.report(Open(7), published={"out": 7}), StepOrder).plan
    assert again == made
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    bench.send(ResultFetched(result(8, profiles=FOUND)))
    found = answers(bench.send(CommitWritten(commit(8), ours=True)))
    assert found == {1: Answer(1, None, 8, FOUND)}
