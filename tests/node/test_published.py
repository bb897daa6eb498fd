"""What is known of published output over restarts, and sinks that leave the dataflow."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.coordinator.operations import ShutDownPipeline
from anabranch.dataflow.flow import Dataflow
from anabranch.errors import ChangedDataflow, UserFunctionFailed
from anabranch.node.identity import check_outputs
from anabranch.protocol.node import Output
from anabranch.protocol.sinks import SinkContext, StagedStep
from anabranch.records.plan import Plan
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource
from anabranch.task.program import Program
from tests.node.engine import Engine, Killed, files_of
from tests.node.shop import SCHEMA, program

# Whoever is killed here is a thread.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

PAGES = [[("ann", 1), ("bob", 2)], [("ann", 3)], [("cid", 4)], [("bob", 5)]]


@dataclass(frozen=True)
class Telling:
    """A sink that has no memory: it tells which steps it is asked for."""

    asked: list[int] = field(default_factory=list)
    stage_format: str = "arrow"

    def refuses(self, schema: pa.Schema) -> str | None:
        return None

    def encode(self, table: pa.Table) -> pa.Buffer:
        return MemorySink().encode(table)

    def open(self, context: SinkContext) -> Telling:
        return self

    def publish(self, staged: StagedStep) -> None:
        self.asked.append(staged.step)


class Place:
    """A directory in which dataflows with these sinks are run, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sinks = {name: Telling() for name in ("all", "more")}
        self.clock = itertools.count(1000)

    def program(self, names: Sequence[str], steps: int = len(PAGES)) -> Program:
        """A dataflow whose input ends after the last page, and pauses after an earlier one."""
        flow = Dataflow("shop")
        script = [*PAGES[:steps], *([EOF] if steps == len(PAGES) else [])]
        orders = flow.source("orders", ScriptedSource(SCHEMA, script))
        for name in names:
            orders.sink(name, self.sinks[name])
        return program(flow)

    def run(
        self,
        *names: str,
        steps: int = 4,
        code: str = "code",
        reached: Callable[[str, int], None] = lambda point, step: None,
        before: Callable[[Plan], None] = lambda plan: None,
    ) -> None:
        """Run up to that step, and end."""
        engine = Engine(
            self.program(names, steps),
            self.directory,
            code=code,
            reached=reached,
            clock_ns=lambda: next(self.clock) * 10**9,
            plane_before=before,
        )
        if steps < len(PAGES):
            engine.start()
            while engine.pipeline.status().step < steps and not engine.dead.is_set():
                if engine.driver.wait(0.01):
                    break
            engine.driver.ask(ShutDownPipeline(), 0.0)
        engine.run()

    def asked(self, name: str) -> list[int]:
        return self.sinks[name].asked


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def killed_at(
    point: str, step: int, *, holding: tuple[str, int] | None = None
) -> Callable[[str, int], None]:
    """Kill the steps at a point; the thread that publishes waits for that at another, and dies."""
    dead = threading.Event()

    def reached(at: str, number: int) -> None:
        if (at, number) == holding:
            assert dead.wait(20)
        if (at, number) == (point, step):
            dead.set()
        if (at, number) in ((point, step), holding):
            raise Killed(at)

    return reached


def test_after_a_clean_end_no_sink_is_asked_again(place: Place) -> None:
    place.run("all", steps=2)
    place.run("all", steps=2)
    assert place.asked("all") == [1, 2]
    place.run("all")
    place.run("all")
    assert place.asked("all") == [1, 2, 3, 4]


def test_after_a_failure_what_was_published_is_known_too(place: Place) -> None:
    def fails(plan: Plan) -> None:
        if plan.step == 3:
            raise UserFunctionFailed("no")

    with pytest.raises(UserFunctionFailed):
        place.run("all", before=fails)
    place.run("all")
    assert place.asked("all") == [1, 2, 3, 4]


def test_a_sink_that_failed_is_asked_again_from_there(place: Place) -> None:
    with pytest.raises(Killed):
        place.run("all", "more", reached=killed_at("ran", 4, holding=("publishing more", 2)))
    # The other sink does not wait for it.
    assert place.asked("all") in ([1, 2], [1, 2, 3])
    assert place.asked("more") == [1]
    place.run("all", "more")
    # Whether the last commit knew of a step is chance: one that it did not know of came again.
    for name in ("all", "more"):
        assert list(dict.fromkeys(place.asked(name))) == [1, 2, 3, 4]


def test_what_was_published_after_the_last_commit_is_published_again(place: Place) -> None:
    with pytest.raises(Killed):
        place.run("all", steps=1, reached=killed_at("published", 1))
    place.run("all")
    assert place.asked("all") == [1, 1, 2, 3, 4]


def test_a_sink_may_leave_when_all_its_output_is_published(place: Place) -> None:
    place.run("all", "more", steps=2)
    place.run("all")
    assert (place.asked("all"), place.asked("more")) == ([1, 2, 3, 4], [1, 2])
    # And come back, to see what comes from then on.
    place.run("all", "more")
    assert place.asked("more") == [1, 2]


def test_a_sink_may_not_leave_while_output_of_it_waits(place: Place) -> None:
    with pytest.raises(Killed):
        place.run("all", "more", reached=killed_at("planned", 4, holding=("publishing more", 1)))
    before = files_of(place.directory)
    gone = "Sink 'more' is gone from the dataflow, but 3 steps of its output are not known"
    for _ in range(2):
        with pytest.raises(ChangedDataflow, match=gone):
            place.run("all", code="changed")
        assert files_of(place.directory) == before
    place.run("all", "more")
    assert sorted(set(place.asked("more"))) == [1, 2, 3, 4]
    place.run("all")


def test_a_sink_whose_output_after_the_last_commit_is_not_known_may_not_leave(place: Place) -> None:
    with pytest.raises(Killed):
        place.run("all", "more", steps=1, reached=killed_at("published", 1))
    assert place.asked("more") == [1]
    with pytest.raises(ChangedDataflow, match=r"'more' is gone.*1 step of its output is not known"):
        place.run("all")


def output(step: int, *sinks: str) -> Output:
    return Output(
        step,
        tuple(
            StagedFile(name=f"{s}-{step}.arrow", sink=s, rows=1, bytes=1, checksum="")
            for s in sinks
        ),
    )


@pytest.mark.parametrize(
    ("published", "refused"),
    [
        ({"all": 1, "more": 2}, None),
        ({"all": 1, "more": 1}, "1 step of its output is not"),
        ({"all": 1, "more": 0}, "2 steps of its output are not"),
        # A sink that left before the last commit was made is none of its business.
        ({"all": 1}, None),
    ],
)
def test_steps_that_have_rows_for_a_sink_that_is_gone_are_counted(
    place: Place, published: dict[str, int], refused: str | None
) -> None:
    waiting = [output(1, "all", "more"), output(2, "more"), output(3, "all"), output(4, "all")]
    made = place.program(["all"])
    if refused is None:
        check_outputs(made, waiting, published, place.directory)
    else:
        with pytest.raises(ChangedDataflow, match=refused) as got:
            check_outputs(made, waiting, published, place.directory)
        assert got.value.where == str(place.directory)


def test_a_sink_that_takes_other_files_than_those_that_wait_is_refused(place: Place) -> None:
    published = {"all": 1}
    both = [output(1, "all"), output(2, "all")]
    check_outputs(place.program(["all"]), both, published, place.directory)
    place.sinks["all"] = Telling(stage_format="json")
    changed = place.program(["all"])
    with pytest.raises(ChangedDataflow, match=r"'all' .* staged as arrow .* takes json now"):
        check_outputs(changed, both, published, place.directory)
    # What is published already does not matter.
    check_outputs(changed, [output(1, "all")], published, place.directory)


def test_code_of_older_programs_is_removed(place: Place) -> None:
    room = place.directory / "code"
    room.mkdir(parents=True)
    for code in ("first", "second", "third"):
        (room / code).write_bytes(b"pickled")
    place.run("all", steps=1, code="first")
    assert {path.name for path in room.iterdir()} == {"first"}
    (room / "second").write_bytes(b"pickled")
    with pytest.raises(Killed):
        place.run("all", code="second", reached=killed_at("planned", 2))
    # The last commit still names the first, and the plan that was left the second.
    assert {path.name for path in room.iterdir()} == {"first", "second"}
    (room / "third").write_bytes(b"pickled")
    place.run("all", steps=2, code="third")
    assert {path.name for path in room.iterdir()} == {"third"}
