"""What a remembered step or task is found by: all that determines what it comes to.

A key is everything that the plan holds, and what a task is told, but for what is named below. So
whatever a plan or a message gets one day counts, until somebody says here why it cannot matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import msgspec

from anabranch.messages import Control, Load, Message, Prefetch, decode_message
from anabranch.operators.process import ProcessOperator
from anabranch.progress.dataflow.times import PART as FRONTIERS
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Input, Plan, PlannedPart, WorkerMessage
from anabranch.records.run_list import RunList
from anabranch.rescale.step_moves import PART as RESCALE
from anabranch.task.program import Program

replace, encode = msgspec.structs.replace, msgspec.json.Encoder(order="sorted").encode

_NOWHERE = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class StepKeys:
    """Makes the keys of a program's steps and tasks.

    ``clock``: what a step comes to depends on its time. ``heard``: the user's code is told the
    messages of a rescale as they are.
    """

    clock: bool
    heard: bool

    @classmethod
    def of(cls, program: Program) -> StepKeys:
        """Look at what the operators of a program do."""
        operators = program.operators.values()
        return cls(
            # Only a time-to-live and event times ask for the time: user's code is not told it.
            clock=any(layout.expires for layout in program.layouts.values())
            or any(each.needs_clock for each in program.physical.assignments()),
            heard=any(isinstance(o, ProcessOperator) and o.handles_messages for o in operators),
        )

    def step(self, plan: Plan, states: Sequence[OperatorState]) -> Hashable:
        """What determines a step: its plan, and the content of the state."""
        if not self.heard:
            plan = replace(
                plan,
                placement=tuple([replace(each, generation=0) for each in plan.placement]),
                messages=tuple([_bare_order(each) for each in plan.messages]),
            )
        # Slices say what is read. Where sources stand afterwards is for the commit.
        inputs = tuple([Input(each.source, each.slices, _NOWHERE) for each in plan.inputs])
        content = self._content(replace(plan, inputs=inputs))
        return content, tuple([(state.live, _run_content(state.runs)) for state in states])

    def task(self, plan: Plan, control: Control, rows: Hashable) -> Hashable:
        """What determines a task: what it is told, its state, the rows it gets, the plan's rest."""
        owned = control.owned
        told = control.messages
        loads = [message for message in told if isinstance(message, Load)]
        if not self.heard:
            told = tuple([_bare_message(message) for message in told])
        told = tuple([_without_state(message) for message in told])
        # Outside of regions what a task does depends on its number, by way of its rows alone.
        control = replace(control, partition=0, worker=0, messages=told)
        # These come to a task as its rows and its control, and only so.
        rest = replace(plan, inputs=(), placement=(), unkeyed_workers=0, messages=(), helping=())
        return (
            self._content(rest),
            encode(control),
            tuple(
                [
                    (_run_content(each.runs, owned), *map(each.live.__getitem__, owned))
                    for each in loads
                ]
            ),
            rows,
        )

    def _content(self, plan: Plan) -> bytes:
        return encode(
            replace(
                plan,
                # It is in the names of files: each attempt has names of its own.
                revision=0,
                clock_ns=plan.clock_ns if self.clock else 0,
                # For the commit, and for whoever prepares the next step.
                started_with=None,
                helping_next=None,
                # What it does in a step is in the placement, the messages and who helps.
                parts={
                    name: _told(each) if name == FRONTIERS else each
                    for name, each in plan.parts.items()
                    if name != RESCALE
                },
            )
        )


def _told(part: PlannedPart) -> PlannedPart:
    """What a part says to tasks; the rest is for the commit."""
    return replace(part, value=_NOWHERE, planned=_NOWHERE)


def _bare_order(order: WorkerMessage) -> WorkerMessage:
    return replace(order, message=msgspec.Raw(encode(_bare_message(decode_message(order.message)))))


def _bare_message(message: Message) -> Message:
    """A message without its generation, which only the user's code might look at.

    Nothing is copied ahead: there are no homes here. Bins that are held count: they are not merged.
    """
    if isinstance(message, Prefetch):
        return Prefetch("", 0, BinSet())
    if hasattr(message, "generation"):
        return replace(message, generation=0)
    return message


def _without_state(message: Message) -> Message:
    """A message without the names of files: what is in them is added."""
    return Load(message.operator, (), ()) if isinstance(message, Load) else message


def _run_content(runs: RunList, owned: BinSet | None = None) -> Hashable:
    """What makes up a state: of all bins, or of those that are owned."""
    mine = -1 if owned is None else owned.bits
    return tuple(
        [
            (listed.run.checksum, listed.run.bytes, listed.run.rows, listed.bins)
            for listed in runs
            if listed.bins.bits & mine
        ]
    )
