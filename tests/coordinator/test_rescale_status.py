"""How far a rescale is, as users are shown it after every step."""

from __future__ import annotations

from anabranch.coordinator.rescaling import rescale_progress
from anabranch.protocol.rescale_requests import CancelRescale, PauseRescale, Scale
from anabranch.protocol.status import RescaleStatus
from anabranch.rescale.controller import is_pending, next_placement
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from tests.rescale.pipeline import Pipeline
from tests.rescale.placed import REGION, placed


def moving() -> Pipeline:
    """Two of four bins are to go to a second worker, one in each step."""
    started = Pipeline(placed(0, 0, 0, 0), RescaleSettings(policy=MovePolicy.FLUID))
    started.step([(REGION, key, key) for key in range(16)])
    started.ask(Scale(2))
    return started


def status(seen: Pipeline) -> RescaleStatus:
    now = next_placement(seen.rescale, seen.placement)
    return rescale_progress(seen.rescale, now, seen.loads(), (0.1, 0.2), seen.settings)


def test_every_bin_waits_or_is_in_hand_over_or_was_moved() -> None:
    seen = moving()
    assert (status(seen).phase, status(seen).waiting) == ("interrogating", {REGION: 2})
    in_hand_over = 0
    while is_pending(seen.rescale):
        found = status(seen)
        assert found.left_bins == sum(found.waiting.values())
        assert found.left_bins + found.moved_bins == 2
        in_hand_over += found.in_hand_over.get(REGION, 0)
        seen.step()
    assert in_hand_over == 2, "both bins were seen in hand-over"
    assert (status(seen).phase, status(seen).request) == ("steady", None)


def test_steps_that_are_left_become_fewer_and_none_is_forgotten() -> None:
    seen = moving()
    foretold = []
    while is_pending(seen.rescale):
        foretold.append(status(seen).steps_left)
        seen.step()
    assert foretold == sorted(foretold, reverse=True)
    assert foretold[-1] == 1


def test_progress_counts_what_was_moved_and_what_is_left() -> None:
    seen = moving()
    for _ in range(4):
        seen.step()
    found = status(seen)
    assert (found.phase, found.moved_bins, found.left_bins) == ("moving", 1, 1)
    assert (found.moved_keys, found.left_keys) == (4, 4)
    assert (found.moved_bytes, found.left_bytes) == (32, 32)
    assert found.seconds_left > found.steps_left * found.usual_seconds > 0
    assert found.budget_bins == 1
    assert found.longest_seconds == 0.1


def test_a_paused_rescale_shows_what_is_left() -> None:
    seen = moving()
    for _ in range(4):
        seen.step()
    seen.ask(PauseRescale())
    assert (status(seen).phase, status(seen).left_bins) == ("paused", 1)
    seen.ask(CancelRescale())
    found = status(seen)
    assert (found.phase, found.left_bins, found.moved_bins) == ("cancelling", 0, 1)
    seen.finish()
    assert (status(seen).waiting, status(seen).in_hand_over) == ({}, {})
