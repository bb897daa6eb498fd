"""Calls to a node, with outcomes and failures as events. The driver and simulations use it."""

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


class CalledNode(Protocol):
    """The methods of ``protocol.node.Node`` that effects call."""

    def order(self, leader: int, order: NodeOrder) -> None:
        """Give an order."""

    def take(self, leader: int, step: int) -> tuple[Input, ...]:
        """Take the input of the offer for a step."""

    def result(self, leader: int, step: int, revision: int) -> StepResult:
        """Fetch the result of the last step."""


def make_call(node: CalledNode | None, leader: int, effect: Give | Take | Fetch) -> Event | None:
    """Call the node, None if it is gone. A failure becomes an event; orders have no outcome."""
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
