"""A shop whose node is led by hand: the journal of its coordinator is a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from anabranch.coordinator.parts.sources import positions_after
from anabranch.node.core import NodeCore
from anabranch.protocol.data_plane import DataPlane
from anabranch.protocol.node import (
    CommitOrder,
    InputLimit,
    NodeOrder,
    NodeReport,
    OpenOrder,
    Output,
    StepOrder,
    StepResult,
)
from anabranch.records.bins import BinSet
from anabranch.records.plan import Input, Plan
from anabranch.rescale.assignments import equal_shares
from anabranch.runs.region_state import RegionState
from anabranch.sinks.memory import MemorySink
from anabranch.testing.plane.memory_plane import MemoryPlane
from tests.node.shop import BINS, Story, make_program

LIMIT = InputLimit()


@dataclass(frozen=True)
class Committed:
    """A step as a journal would have it."""

    plan: Plan
    result: StepResult
    positions: tuple[Input, ...]


@dataclass
class CancellablePlane(MemoryPlane):
    """A memory plane that counts how often it was asked to give up."""

    cancels: int = 0

    def cancel(self) -> None:
        self.cancels += 1


@dataclass
class CoreShop:
    """The shop's program, the node that runs it, and what was committed."""

    directory: Path
    source: Any = None
    workers: int = 2
    leader: int = 1
    now: float = 1000.0
    number: int = 0
    journal: list[Committed] = field(default_factory=list)
    sink: MemorySink = field(default_factory=MemorySink)

    def __post_init__(self) -> None:
        self.rows = self.sink
        self.program = make_program(self.directory, self.rows, self.source)
        self.store = self.directory / "state"
        self.store.mkdir(parents=True, exist_ok=True)
        self.plane: DataPlane = CancellablePlane(self.program, self.store)
        self.core = self.new_core()

    def new_core(
        self, reached: Callable[[str, int], None] = lambda point, step: None, **more: Any
    ) -> NodeCore:
        """A node as after the start of its process."""
        program = more.pop("program", self.program)
        given = {"clock": lambda: self.now, "boot": "boot", "reached": reached, **more}
        self.core = NodeCore(program, self.store, self.plane, "code", **given)
        return self.core

    @property
    def step(self) -> int:
        return self.journal[-1].plan.step if self.journal else 0

    @property
    def report(self) -> NodeReport:
        return self.core.report(self.leader)

    def give(self, order: NodeOrder) -> None:
        self.core.take_order(self.leader, order)

    def open_order(self, at: int | None = None, **more: Any) -> OpenOrder:
        """An order to open where the journal ends, or at an earlier step."""
        self.number += 1
        kept = self.journal if at is None else self.journal[:at]
        last = kept[-1] if kept else None
        placement = () if last is None else last.plan.placement
        given = {
            "number": self.number,
            "pipeline": "the shop",
            "step": last.plan.step if last else 0,
            "clock_ns": last.plan.clock_ns if last else 0,
            "states": last.result.states if last else None,
            "positions": self.journal[-1].positions if self.journal else (),
            "pending": (),
            "outputs": tuple(Output(c.plan.step, c.result.staged) for c in self.journal),
            "published": dict.fromkeys(self.program.sinks, 0),
            "placement": tuple((a.region, a.workers) for a in placement),
            "limit": LIMIT,
        }
        return OpenOrder(**{**given, **more})

    def open(self, **more: Any) -> NodeReport:
        self.give(self.open_order(**more))
        while self.core.open_pending():
            pass
        return self.report

    def plan(self, inputs: tuple[Input, ...], revision: int = 0, **more: Any) -> Plan:
        last = self.journal[-1].plan.placement if self.journal else ()
        regions = [region.name for region in self.program.physical.regions]
        given: dict[str, Any] = {
            "step": self.step + 1,
            "revision": revision,
            "clock_ns": int(self.now * 1e9),
            "code": "code",
            "inputs": inputs,
            "placement": equal_shares(regions, BINS, self.workers, last),
            "unkeyed_workers": self.workers,
        }
        return Plan(**{**given, **more})

    def run(self, plan: Plan) -> StepResult:
        self.give(StepOrder(plan))
        assert self.core.run_step()
        return self.core.result(self.leader, plan.step, plan.revision)

    def commit_order(self, done: Committed, **more: Any) -> CommitOrder:
        output = Output(done.plan.step, done.result.staged)
        return CommitOrder(done.plan.step, output, done.positions, LIMIT, **more)

    def write(self, plan: Plan, result: StepResult) -> Committed:
        """Commit in the journal, before the node hears of it."""
        before = self.journal[-1].positions if self.journal else ()
        done = Committed(plan, result, positions_after(before, plan.inputs))
        self.journal.append(done)
        return done

    def one_step(self) -> bool:
        """Take what is offered, run it, commit it; False when nothing is offered."""
        self.core.poll_inputs()
        offer = self.report.offer
        if offer is None or offer.step != self.step + 1 or not offer.rows:
            return False
        plan = self.plan(self.core.take(self.leader, self.step + 1))
        done = self.write(plan, self.run(plan))
        self.give(self.commit_order(done))
        return True

    def run_all(self) -> None:
        """Run until the input has ended and everything is published."""
        while self.one_step() or not (self.report.offer is not None and self.report.offer.ended):
            pass
        self.publish_all()

    def publish_all(self) -> None:
        while self.publish_some():
            pass

    def publish_some(self) -> bool:
        """Let every sink publish once; whether one did."""
        return any([self.core.publish_next(sink) for sink in self.core.sinks])

    def state(self, operator: str) -> dict[Any, Any]:
        """What an operator holds at the end of the journal."""
        kept = next(s for s in self.core.snapshot.states if s.operator == operator)
        every = BinSet.every(BINS)
        layout = self.program.layouts[operator]
        state = RegionState(operator, layout, kept.runs, self.store, BINS, every, kept.live)
        key = "k_customer" if operator == "seen" else "k_times"
        return {row[key]: row for row in state.scan().to_pylist()}

    def check(self, story: Story | None = None) -> None:
        """Everything is as if nothing had ever happened: no step twice, none missing."""
        story = story or Story()
        assert [done.plan.step for done in self.journal] == list(story.rows)
        published = {
            step: sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
            for step, table in self.rows.steps().items()
        }
        assert published == {s: sorted(rows, key=repr) for s, rows in story.rows.items()}
        seen = {
            customer: msgspec.msgpack.decode(row["v_state"])
            for customer, row in self.state("seen").items()
        }
        assert seen == story.seen
        times = self.state("times")
        assert {t: (row["v_n"], row["v_last"]) for t, row in times.items()} == story.counts
