"""A call to the node: what the driver and a simulation make of one, and of its failure."""

from __future__ import annotations

from typing import Protocol

from anabranch.coordinator.effects import Fetch, Give, Take
from anabranch.coordinator.events import (
    EffectFailed,
    Event,
    InputTaken,
    LeaderFenced,
    ResultFetched,
)
from anabranch.errors import AnabranchError, Fenced, NodeUnreachable
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import NodeOrder, StepResult
from anabranch.records.plan import Input


class Called(Protocol):
    """The part of a node that is called; see ``node.port.Node``."""

    def order(self, leader: int, order: NodeOrder) -> None:
        """Give an order."""
        ...

    def take(self, leader: int, step: int) -> tuple[Input, ...]:
        """The input of the offer for a step."""
        ...

    def result(self, leader: int, step: int, revision: int) -> StepResult:
        """The result of the last step that was run."""
        ...


def make_call(node: Called | None, leader: int, effect: Give | Take | Fetch) -> Event | None:
    """Call the node, None for one that is gone. Any failure is an event; an order has no answer."""
    try:
        if node is None:
            raise NodeUnreachable("The node is gone", do="It is being replaced.")
        match effect:
            case Give(order):
                node.order(leader, order)
                return None
            case Take(step):
                return InputTaken(step, node.take(leader, step))
            case Fetch(step, revision):
                return ResultFetched(node.result(leader, step, revision))
    except Fenced as error:
        return LeaderFenced(failure_of(error))
    except AnabranchError as error:
        return EffectFailed(effect, failure_of(error))
