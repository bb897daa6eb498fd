"""How much of the journal the coordinator lets go."""

from __future__ import annotations

import pytest

from anabranch.coordinator.effects import Trim
from anabranch.coordinator.jobs.checkpoint import KEPT_STEPS
from anabranch.coordinator.machine import new_memory
from anabranch.coordinator.settings import Settings
from anabranch.protocol.node import Output
from tests.coordinator.bench import checkpoint, journal, staged


@pytest.mark.parametrize(
    ("step", "published", "kept", "below"),
    [
        # A few of the last steps stay, whatever checkpoints there are.
        (10, 10, (10,), 0),
        (40, 40, (40,), 40 - KEPT_STEPS),
        # A replay from the oldest checkpoint needs every step after it.
        (40, 40, (5, 40), 6),
        # What waits to be published is not in any checkpoint.
        (40, 12, (40,), 13),
        (40, 0, (40,), 1),
        (40, 3, (5, 40), 4),
    ],
)
def test_the_journal_keeps_what_a_replay_and_publishing_need(
    step: int, published: int, kept: tuple[int, ...], below: int
) -> None:
    memory = new_memory(Settings())
    memory.journal = journal(
        step, checkpoints=tuple(checkpoint(each) for each in kept), published={"out": published}
    )
    memory.outputs = {n: Output(n, staged(n)) for n in range(published + 1, step + 1)}
    assert memory.checkpoint.trim(memory) == Trim(0, below, kept)
