"""The bare machine on a bench: events go in by hand, effects are looked at."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anabranch.coordinator.effects import Effect, Give
from anabranch.coordinator.event_log import EventLog
from anabranch.coordinator.events import (
    Begun,
    CommitWritten,
    Event,
    IdentityWritten,
    InputTaken,
    JournalRead,
    Led,
    Moment,
    NodeReported,
    PlanWritten,
    ResultFetched,
    TimePassed,
)
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.machine import Machine
from anabranch.coordinator.settings import Settings
from anabranch.protocol.node import (
    Checked,
    Closed,
    Done,
    Failure,
    NodeReport,
    Offer,
    Open,
    OpenOrder,
    ProgramInfo,
    Running,
    SinkInfo,
    StepOrder,
    StepResult,
)
from anabranch.records.commit import Checkpoint, Commit, RowCount
from anabranch.records.leader import Identity
from anabranch.records.placed import Assignment, OperatorShape, OperatorState, state_fingerprint
from anabranch.records.plan import Input, Plan
from anabranch.records.slices import RangeSlice
from anabranch.records.staged_file import StagedFile
from tests.coordinator.parts_kit import parts_with

FACTS = ProgramInfo(
    dataflow="orders",
    code="c1",
    bins=4,
    regions=("by-name",),
    shapes=(),
    sources=("orders",),
    sinks=(SinkInfo("out", "parquet", True),),
)
IDENTITY = Identity("pipeline-1", "orders", 4)
WITHOUT_RUNS = state_fingerprint(())
PLACED = (Assignment("by-name", 1, (0, 0, 1, 1)),)
SHAPE = OperatorShape("total", "map", "by-name", "name string", "total long")


def state(mark: int) -> tuple[OperatorState, ...]:
    """A state that differs from every other one by its live keys."""
    return (OperatorState(SHAPE, (), (mark, 0, 0, 0)),)


def read(step: int) -> tuple[Input, ...]:
    return (Input("orders", (RangeSlice(0, step - 1, step),), msgspec.Raw(b"%d" % step)),)


def plan(step: int, revision: int = 0, **changes: Any) -> Plan:
    made = Plan(
        step=step,
        revision=revision,
        clock_ns=step * 1000,
        code="c1",
        inputs=read(step),
        placement=PLACED,
        unkeyed_workers=2,
        started_with=2,
    )
    return msgspec.structs.replace(made, **changes)


def staged(step: int) -> tuple[StagedFile, ...]:
    return (
        StagedFile(name=f"stage/out/{step}", sink="out", rows=1, bytes=10, checksum="00000000"),
    )


def counts(step: int) -> tuple[RowCount, ...]:
    return (RowCount("sink out", 1, (0,), (1,), (f"{step:016x}",)),)


def commit(step: int, **changes: Any) -> Commit:
    made = Commit(
        step=step,
        revision=0,
        clock_ns=step * 1000,
        code="c1",
        placement=PLACED,
        states=state(step),
        staged=staged(step),
        counts=counts(step),
        published={"out": step - 1},
        workers=2,
        parts=parts_with(positions(step)),
    )
    return msgspec.structs.replace(made, **changes)


def positions(step: int) -> tuple[Input, ...]:
    return tuple(msgspec.structs.replace(each, slices=()) for each in read(step))


def checkpoint(step: int) -> Checkpoint:
    made = commit(step)
    return Checkpoint(0, made, {"out": step})


def result(step: int, revision: int = 0, **changes: Any) -> StepResult:
    made = StepResult(step, revision, state(step), staged(step), counts(step), 1, 0, {})
    return msgspec.structs.replace(made, **changes)


def journal(step: int, **changes: Any) -> JournalView:
    made: dict[str, Any] = {"identity": IDENTITY}
    if step:
        made |= {"commit": commit(step), "states": state(step), "published": {"out": step}}
    return JournalView(**(made | changes))


@dataclass
class Bench:
    """A machine, the time, and a node that says what the test lets it say."""

    settings: Settings = field(default_factory=Settings)
    info: ProgramInfo = field(default_factory=lambda: FACTS)
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    version: int = 0
    opened: int = 0
    boot: str = "b1"

    def __post_init__(self) -> None:
        self.machine = Machine(self.settings, validate=True, **self.options)

    def send(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(self._now, event)
        self._never_spins()
        return effects

    def _never_spins(self) -> None:
        """Whatever was waited for, once time has passed something else is: else a core is busy.

        Looked at in a copy, for the test may want something else to happen first.
        """
        woken = copy.deepcopy(self.machine, {id(self.machine.log): EventLog()})
        woken.handle(self._now, TimePassed())
        wakes = woken.wakes_at()
        assert wakes is None or wakes > self.seconds, f"{woken.memory.phase} waits for the past"

    @property
    def _now(self) -> Moment:
        return Moment(self.seconds, int(self.seconds * 1e9))

    def report(self, state: Closed | Open | Running, **said: Any) -> list[Effect]:
        return self.send(NodeReported(self.telling(state, **said)))

    def telling(self, state: Closed | Open | Running, **said: Any) -> NodeReport:
        self.version += 1
        made = NodeReport(
            self.version,
            self.boot,
            "app-1",
            1,
            self.info,
            state,
            opened=self.opened,
            branch=self.machine.memory.journal.branch,
            stands=WITHOUT_RUNS,
            reached=WITHOUT_RUNS,
        )
        return msgspec.structs.replace(made, **said)

    def offer(self, step: int, rows: int = 1, *, ended: bool = False, **said: Any) -> Offer:
        return Offer(step, rows, 0, {"orders": rows}, False, ended, **said)

    def begin(self, at: JournalView, leader: int = 1) -> list[Effect]:
        """Up to the question which node there is."""
        self.send(Begun())
        self.send(Led(leader))
        return self.send(JournalRead(at))

    def open(self, at: JournalView) -> list[Effect]:
        """Up to open state, with a node that was just started."""
        self.begin(at)
        effects = self.report(Closed())
        if at.identity is None:
            effects = self.send(IdentityWritten(IDENTITY))
        order = order_of(effects, OpenOrder)
        self.opened = order.number
        return self.report(Open(order.step), published={"out": order.step})

    def verified(self, step: int, asked: int, failure: Failure | None = None) -> list[Effect]:
        """The node has read the files of a checkpoint that somebody wants to load."""
        at = self.machine.memory.step
        checked = Checked(step, 3, 3, failure, asked)
        return self.report(Open(at), checked=checked, published={"out": at})

    def step(self, number: int) -> list[Effect]:
        """One whole step, from the offer to the commit."""
        before = {"published": {"out": number - 1}}
        self.report(Open(number - 1), offer=self.offer(number), **before)
        effects = self.send(InputTaken(number, read(number)))
        planned = plan(number, clock_ns=int(self.seconds * 1e9))
        effects = self.send(PlanWritten(planned))
        assert order_of(effects, StepOrder).plan == planned
        self.report(Open(number), done=Done(number, 0), **before)
        self.send(ResultFetched(result(number)))
        return self.send(CommitWritten(commit(number), ours=True))


def orders_of(effects: list[Effect]) -> list[Any]:
    return [effect.order for effect in effects if isinstance(effect, Give)]


def order_of(effects: list[Effect], kind: type) -> Any:
    found = [order for order in orders_of(effects) if isinstance(order, kind)]
    assert len(found) == 1, effects
    return found[0]


def kinds(effects: list[Effect]) -> list[str]:
    """The effects' names, and the orders' instead of ``Give``."""
    return [type(e.order if isinstance(e, Give) else e).__name__ for e in effects]
