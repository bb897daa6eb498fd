"""A coordinator of a few lines that leads any node through the shop's story, by the port alone."""

from __future__ import annotations

import time
from typing import Any

from anabranch.protocol.node import Node, NodeReport, StepOrder
from tests.node.core_shop import Committed, CoreShop

PATIENCE = 60.0


class Led:
    """Leads a node for a shop; the shop has the program and the journal."""

    def __init__(self, shop: CoreShop, node: Node, leader: int = 1) -> None:
        self.shop = shop
        self.node = node
        self.leader = leader

    def until(self, wanted: Any) -> NodeReport:
        """Listen until the node says what is wanted."""
        seen, end = 0, time.monotonic() + PATIENCE
        while time.monotonic() < end:
            told = self.node.told(self.leader, seen, 1.0)
            assert told.failed_open is None, told.failed_open
            assert told.failed_step is None, told.failed_step
            if wanted(told):
                return told
            seen = told.version
        raise AssertionError(f"the node never said so: {told}")

    def open(self, **more: Any) -> NodeReport:
        order = self.shop.open_order(**more)
        self.node.order(self.leader, order)
        return self.until(lambda told: told.opened == order.number)

    def offered(self) -> NodeReport:
        """Wait for input, or for its end."""
        step = self.shop.step + 1
        return self.until(
            lambda told: (
                told.offer is not None
                and told.offer.step == step
                and (told.offer.rows or told.offer.ended)
            )
        )

    def run_plan(self, plan: Any) -> Committed:
        self.node.order(self.leader, StepOrder(plan))
        self.until(lambda told: told.done is not None and told.done.step == plan.step)
        done = self.shop.write(plan, self.node.result(self.leader, plan.step, plan.revision))
        self.node.order(self.leader, self.shop.commit_order(done))
        return done

    def one_step(self) -> bool:
        offer = self.offered().offer
        assert offer is not None
        if not offer.rows:
            return False
        self.run_plan(self.shop.plan(self.node.take(self.leader, self.shop.step + 1)))
        return True

    def run_all(self) -> None:
        while self.one_step():
            pass
        self.until(lambda told: set(told.published.values()) == {self.shop.step})
