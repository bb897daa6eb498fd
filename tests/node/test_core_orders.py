"""Orders that are doubled, late, in another order, or of a leader of yesterday: never any harm.

A coordinator that knows what the node must reach gives its orders through a line that mixes them
with old ones. Whatever comes through, the node ends where a node without trouble ends.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import Fenced, NodeUnreachable
from anabranch.protocol.node import (
    CancelOrder,
    Closed,
    CloseOrder,
    NodeOrder,
    Open,
    Running,
    StepOrder,
)
from tests.node.core_shop import Committed, CoreShop

WORK = (
    "open_pending",
    "run_step",
    "poll_inputs",
    "publish_next",
    "check_next",
    "sweep",
    "close_pending",
    "cancel_pending",
)
ROUNDS = 400


class Mixer:
    """A coordinator that repeats itself, over a line that does so too."""

    def __init__(self, shop: CoreShop, data: st.DataObject) -> None:
        self.shop = shop
        self.data = data
        self.sent: list[NodeOrder] = []
        self.number = 0
        self.plan: StepOrder | None = None
        self.last: Committed | None = None

    def send(self, order: NodeOrder) -> None:
        """Give an order once, twice, or not at all; and some old one with it."""
        self.sent.append(order)
        for _ in range(self.data.draw(st.sampled_from([1, 1, 2, 0]))):
            self.shop.give(order)
        if self.data.draw(st.integers(0, 3)) == 0:
            self.shop.give(self.data.draw(st.sampled_from(self.sent)))
        if self.data.draw(st.integers(0, 7)) == 0:
            old = self.data.draw(st.sampled_from([*self.sent, CloseOrder(exit=True)]))
            try:
                self.shop.core.take_order(self.shop.leader - 1, old)
            except Fenced:
                return
            raise AssertionError("an order of a lower leader was taken")

    def work(self) -> None:
        for _ in range(self.data.draw(st.integers(0, 4))):
            core = self.shop.core
            kind = self.data.draw(st.sampled_from(WORK))
            sinks = [self.data.draw(st.sampled_from(core.sinks))] if kind == "publish_next" else []
            getattr(core, kind)(*sinks)

    def round(self) -> bool:
        """Look at what the node says, and ask for what is missing; True when all is done."""
        shop = self.shop
        report = shop.report
        if report.opened != self.number or isinstance(report.state, Closed):
            order = shop.open_order()
            self.number = order.number
            self.send(order)
            for _ in range(2):
                if shop.report.opened == self.number:
                    break
                shop.give(order)
                shop.core.open_pending()
            return False
        if report.state == Open(shop.step):
            return self._at_rest()
        if report.done is not None and report.done.step == shop.step + 1:
            result = shop.core.result(shop.leader, report.done.step, report.done.revision)
            assert self.plan is not None
            self.last = shop.write(self.plan.plan, result)
            self.send(shop.commit_order(self.last, opened=self.number))
            return False
        assert isinstance(report.state, Running), report.state
        if self.data.draw(st.integers(0, 9)) == 0:
            self.send(CancelOrder(report.state.step))
        return False

    def _at_rest(self) -> bool:
        shop = self.shop
        report = shop.report
        if report.committed < shop.step:
            assert self.last is not None
            self.send(shop.commit_order(self.last, opened=self.number))
            return False
        failed = report.failed_step
        if failed is not None and self.plan is not None and failed.step == shop.step + 1:
            revised = shop.plan(self.plan.plan.inputs, revision=failed.revision + 1)
            self.plan = StepOrder(revised, opened=self.number)
            self.send(self.plan)
            return False
        try:
            inputs = shop.core.take(shop.leader, shop.step + 1)
        except NodeUnreachable:
            return False
        if not any(given.slices for given in inputs):
            ended = report.offer is not None and report.offer.ended
            if not ended:
                # Nothing was taken that counts: the sources are opened where they stand.
                shop.core.poll_inputs()
                self.number = 0
            return ended
        revision = 0
        if self.plan is not None and self.plan.plan.step == shop.step + 1:
            revision = self.plan.plan.revision + 1
        self.plan = StepOrder(shop.plan(inputs, revision=revision), opened=self.number)
        self.send(self.plan)
        return False


@settings(max_examples=25)
@given(st.data())
def test_whatever_comes_twice_or_late_the_node_ends_where_it_must(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        shop = CoreShop(Path(directory), leader=7)
        mixer = Mixer(shop, data)
        versions = [shop.report.version]
        for _ in range(ROUNDS):
            mixer.work()
            shop.core.poll_inputs()
            shop.core.run_step()
            versions.append(shop.report.version)
            if mixer.round():
                break
        else:
            raise AssertionError(f"it never came to its end: {shop.report}")
        assert versions == sorted(versions)
        shop.publish_all()
        shop.check()
        assert not shop.core.exit_asked
