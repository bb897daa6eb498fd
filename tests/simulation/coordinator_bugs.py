"""Bugs of the coordinator's parts and peers, put in on purpose."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from anabranch.coordinator.memory import PendingRescale
from anabranch.errors import Fenced
from anabranch.node.core import NodeCore
from anabranch.node.node_machine import Duties
from anabranch.records.commit import Checkpoint, Commit

Patch = pytest.MonkeyPatch


def a_part_is_lost_on_rewind(patch: Patch) -> None:
    """Going back to a checkpoint forgets what its commit carries beside the state."""
    opened = Checkpoint.opened

    def without_parts(self: Checkpoint) -> Commit:
        return msgspec.structs.replace(opened(self), parts={})

    patch.setattr(Checkpoint, "opened", without_parts)


def an_order_to_a_replaced_peer_is_obeyed(patch: Patch) -> None:
    """A node whose leader was replaced removes at once what that leader did not need."""
    fence, is_led = Duties.fence, NodeCore._is_led

    def unfenced(self: Any, leader: int) -> None:
        with contextlib.suppress(Fenced):
            fence(self, leader)

    def obedient(self: Any) -> bool:
        if not is_led(self):
            self._chores._sweeper._grace = 0.0
        return True

    patch.setattr(Duties, "fence", unfenced)
    patch.setattr(NodeCore, "_is_led", obedient)


def an_answer_is_counted_twice(patch: Patch) -> None:
    """Who asked for a rescale is answered by the commit that knows of it, and by the next one."""

    def kept(self: Any) -> tuple[int, ...]:
        numbers: tuple[int, ...] = self.numbers
        return numbers

    patch.setattr(PendingRescale, "take_numbers", kept)


COORDINATOR_BUGS = (
    a_part_is_lost_on_rewind,
    an_order_to_a_replaced_peer_is_obeyed,
    an_answer_is_counted_twice,
)
