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
            report = self.node.report(self.leader, seen, 1.0)
            assert report.failed_open is None, report.failed_open
            assert report.failed_step is None, report.failed_step
            if wanted(report):
                return report
            seen = report.version
        raise AssertionError(f"the node never said so: {report}")

    def open(self, **more: Any) -> NodeReport:
        order = self.shop.open_order(**more)
        self.node.order(self.leader, order)
        return self.until(lambda report: report.opened == order.number)

    def offered(self) -> NodeReport:
        """Wait for input, or for its end."""
        step = self.shop.step + 1
        return self.until(
            lambda report: (
                report.offer is not None
                and report.offer.step == step
                and (report.offer.rows or report.offer.ended)
            )
        )

    def run_plan(self, plan: Any) -> Committed:
        self.node.order(self.leader, StepOrder(plan))
        self.until(lambda report: report.done is not None and report.done.step == plan.step)
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
        self.until(lambda report: set(report.published.values()) == {self.shop.step})
