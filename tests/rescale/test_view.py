from __future__ import annotations

from anabranch.rescale.controller import is_pending
from anabranch.rescale.requests import Cancel, Pause, Scale
from anabranch.rescale.rounds import RescaleSettings, Way
from anabranch.rescale.view import RescaleView, view_of
from tests.rescale.pipeline import Pipeline
from tests.rescale.placed import REGION, placed


def moving() -> Pipeline:
    started = Pipeline(placed(0, 0, 0, 0), RescaleSettings(way=Way.FLUID))
    started.step([(REGION, key, key) for key in range(16)])
    started.ask(Scale(2))
    return started


def status(seen: Pipeline) -> RescaleView:
    return view_of(seen.rescale, seen.placement, seen.loads(), seen.settings, seen.moves)


def test_whitelist_and_hold_are_visible_at_every_moment() -> None:
    seen = moving()
    held: list[int] = []
    assert status(seen).phase == "interrogating"
    while is_pending(seen.rescale):
        seen.plan()
        shown = status(seen)
        (region,) = shown.regions
        assert not region.whitelist & region.hold
        if shown.phase == "moving":
            assert len(region.whitelist | region.hold) >= shown.bins_left
            assert shown.target_workers == (0, 1)
        held += [bin for bin in region.hold if bin not in held]
        seen.step()
    assert len(held) == 2, "both bins were seen in hand-over"
    assert status(seen).phase == "steady"
    assert status(seen).wish is None


def test_progress_counts_what_was_moved_and_what_is_left() -> None:
    seen = moving()
    for _ in range(4):
        seen.step()
    shown = status(seen)
    assert shown.phase == "moving"
    assert (shown.moved.bins, shown.bins_left) == (1, 1)
    assert shown.bytes_left > 0
    assert shown.steps_left > 0
    assert shown.seconds_left > 0
    assert shown.budget is not None
    assert shown.budget.bins == 1
    assert shown.moved.longest_seconds == 0.1


def test_a_paused_rescale_shows_what_is_left() -> None:
    seen = moving()
    for _ in range(4):
        seen.step()
    seen.ask(Pause())
    assert status(seen).phase == "paused"
    assert status(seen).bins_left == 1
    seen.ask(Cancel())
    shown = status(seen)
    assert (shown.phase, shown.bins_left, shown.steps_left) == ("cancelling", 0, 1)
    seen.finish()
    assert status(seen).regions[0].hold == status(seen).regions[0].whitelist
