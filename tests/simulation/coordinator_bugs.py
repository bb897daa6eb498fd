"""Bugs of the coordinator's parts and peers, put in on purpose."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.coordinator.jobs.rescale import RescaleJob
from anabranch.records.commit import Checkpoint, Commit

Patch = pytest.MonkeyPatch


def a_part_is_lost_on_rewind(patch: Patch) -> None:
    """Going back to a checkpoint forgets what its commit carries beside the state."""
    opened = Checkpoint.opened

    def without_parts(self: Checkpoint) -> Commit:
        return msgspec.structs.replace(opened(self), parts={})

    patch.setattr(Checkpoint, "opened", without_parts)


def an_answer_is_counted_twice(patch: Patch) -> None:
    """Who asked for a rescale is answered by the commit that knows of it, and by the next one."""

    def kept(self: Any) -> tuple[int, ...]:
        return tuple(number for number, _ in self.queue)

    patch.setattr(RescaleJob, "take_queue", kept)


COORDINATOR_BUGS = (a_part_is_lost_on_rewind, an_answer_is_counted_twice)
