"""Everything that can happen to a rescale of three bins on three workers, looked at once each.

The controller that is checked is the real one; ``model.py`` is the world around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec
import pytest

from anabranch.protocol.rescale_requests import CancelRescale, RescaleRequest
from anabranch.records.bins import BinSet
from anabranch.records.placed import Assignment
from anabranch.records.shares import reassigned
from anabranch.rescale import apply_request, controller
from anabranch.rescale.controller import Rescale
from anabranch.rescale.migration import Migration, MigrationView, Reports
from anabranch.rescale.phases import Moving
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.rescale.step_moves import StepMoves
from tests.rescale import model
from tests.rescale.model import Model, Violation, World, key, search

FLUID = RescaleSettings(policy=MovePolicy.FLUID, answer_steps=1, prefetch_steps=1)
AT_ONCE = RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, answer_steps=1, prefetch=False)
UNASKED = RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, answer_steps=0, prefetch=False)


@pytest.mark.parametrize(
    ("settings", "bounds"),
    [
        (AT_ONCE, {"crashes": 1, "requests": 2, "cancels": 1}),
        (UNASKED, {"crashes": 1, "requests": 2, "cancels": 0}),
        (FLUID, {"crashes": 2, "requests": 2, "cancels": 0}),
        (FLUID, {"crashes": 2, "requests": 1, "cancels": 1}),
        (FLUID, {"crashes": 1, "requests": 1, "cancels": 0, "pauses": 1}),
        pytest.param(*(AT_ONCE, {"crashes": 2, "requests": 2}), marks=pytest.mark.soak),
        pytest.param(*(FLUID, {"crashes": 2, "requests": 2}), marks=pytest.mark.soak),
    ],
    ids=["at once", "unasked", "second rescale", "cancel", "pause", "all at once", "everything"],
)
def test_no_rule_is_broken_whatever_happens(
    settings: RescaleSettings, bounds: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    found = search(settings, **bounds)
    with capsys.disabled():
        print(f"\n{settings.policy} {bounds}: {found.worlds} states, {found.events} events")
    assert found.worlds > 1_000
    assert found.ends > 5


# ------------------------------------------------------------------------ the search finds mistakes


def two_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner has a bin from the step on in which the old one still collects it."""
    owned = StepMoves.owned

    def too_early(moves: StepMoves, region: str, worker: int) -> BinSet:
        early = (move.bin for move in moves.collect if move.to_worker == worker)
        return owned(moves, region, worker) | BinSet.of(early)

    monkeypatch.setattr(StepMoves, "owned", too_early)


def forgetful_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel drops the bins that are in hand-over."""
    apply = apply_request.apply_request

    def forgetting(
        rescale: Rescale, asked: RescaleRequest, placement: tuple[Assignment, ...]
    ) -> Rescale:
        after = apply(rescale, asked, placement)
        if isinstance(asked, CancelRescale):
            return msgspec.structs.replace(after, handing=())
        return after

    monkeypatch.setattr(apply_request, "apply_request", forgetting)


def cancel_at_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel that comes while a step collects bins takes that step for one that did nothing."""
    after_commit = controller.after_commit

    def forgetting(rescale: Rescale, moves: StepMoves, reports: Reports) -> Rescale:
        after = after_commit(rescale, moves, reports)
        ours = moves.turn == rescale.turn
        return after if ours else msgspec.structs.replace(after, handing=())

    monkeypatch.setattr(controller, "after_commit", forgetting)


def stale_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second rescale starts from where things were before the first one."""
    plan = Moving.plan

    def stale(phase: Moving, view: MigrationView) -> object:
        before = tuple(Assignment(shares.region, 1, shares.workers) for shares in phase.origin)
        step = msgspec.structs.replace(view.step, placement=before)
        moves = plan(phase, replace(view, step=step))
        return msgspec.structs.replace(moves, placement=view.step.placement)

    monkeypatch.setattr(Moving, "plan", stale)


def acquire_before_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner gets ``Acquire`` in the step that still collects."""
    plan_step = controller.plan_step

    def early(*given: object) -> StepMoves:
        moves = plan_step(*given)  # type: ignore[arg-type]
        return msgspec.structs.replace(moves, acquire=moves.acquire + moves.collect)

    monkeypatch.setattr(controller, "plan_step", early)


def no_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bins are simply assigned to their new owner, without having been collected."""
    plan_step = controller.plan_step

    def jumping(*given: object) -> StepMoves:
        moves = plan_step(*given)  # type: ignore[arg-type]
        ends = [move.end for move in moves.collect]
        placement = reassigned(moves.placement, ends)
        return msgspec.structs.replace(moves, placement=placement, collect=())

    monkeypatch.setattr(controller, "plan_step", jumping)


def endless_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that nobody reports is waited for, for ever."""
    after = Migration.after

    def waiting(migration: Migration, *given: object) -> Migration:
        found = after(migration, *given)  # type: ignore[arg-type]
        still = tuple(msgspec.structs.replace(each, steps=0) for each in found.copying)
        return msgspec.structs.replace(found, copying=still)

    monkeypatch.setattr(Migration, "after", waiting)


def early_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was told to shut down is told again."""

    def everyone(rescale: Rescale, placement: tuple[Assignment, ...]) -> tuple[int, ...]:
        return rescale.workers

    monkeypatch.setattr(controller, "idle_workers", everyone)


def forgotten_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash the last commit is gone on from, not what the plan was made from."""
    edges = Model.edges

    def forgetting(checked: Model, world: World) -> Iterable[model.Edge]:
        for edge in edges(checked, world):
            if edge.name == "crash":
                yield edge._replace(world=replace(edge.world, memory=world.journal))
            else:
                yield edge

    monkeypatch.setattr(Model, "edges", forgetting)


def forgotten_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has files but never had a bin is not told when it is not needed after all."""
    after_commit = controller.after_commit

    def forgetting(rescale: Rescale, moves: StepMoves, reports: Reports) -> Rescale:
        after = after_commit(rescale, moves, reports)
        owners = tuple(sorted(set(after.workers) & set(moves.placement[0].workers)))
        return msgspec.structs.replace(after, workers=owners)

    monkeypatch.setattr(controller, "after_commit", forgetting)


@pytest.mark.parametrize(
    ("broken", "settings", "bounds", "rule"),
    [
        (two_owners, FLUID, {"requests": 1, "cancels": 0}, "R1: bin . has the owners"),
        (forgetful_cancel, AT_ONCE, {"requests": 1}, "is lost"),
        (cancel_at_commit, AT_ONCE, {"requests": 1}, "is lost"),
        (stale_assignment, AT_ONCE, {"requests": 2, "cancels": 0}, "R2: bin . is collected from"),
        (acquire_before_collect, FLUID, {"requests": 1, "cancels": 0}, "R2: bin . is acquired"),
        (no_collect, AT_ONCE, {"requests": 1, "cancels": 0}, "R2: worker . has bin"),
        (endless_patience, FLUID, {"requests": 1, "cancels": 0}, "R8: it never ends"),
        (early_shutdown, AT_ONCE, {"requests": 1, "cancels": 0}, "worker with bins is shut down"),
        (forgotten_plan, UNASKED, {"requests": 2, "cancels": 0}, "some have no bins|wanted"),
        (forgotten_worker, FLUID, {"requests": 1, "crashes": 0}, "some have no bins"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_mistake_is_found(
    broken: Callable[[pytest.MonkeyPatch], None],
    settings: RescaleSettings,
    bounds: dict[str, int],
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch)
    with pytest.raises(Violation, match=rule):
        search(settings, **bounds)


def renamed(world: World, workers: tuple[int, ...], bins: tuple[int, ...]) -> World:
    """The same steady world with other names: ``workers[w]`` for w, bin ``bins[b]`` for b."""
    owners = [0] * model.BINS
    for number, owner in enumerate(world.placement.workers):
        owners[bins[number]] = workers[owner]
    mind = world.memory._replace(
        rescale=msgspec.structs.replace(world.memory.rescale, workers=tuple(sorted(set(owners)))),
        origin=tuple(owners),
    )
    placement = Assignment(world.placement.region, 1, tuple(owners))
    return replace(world, journal=mind, memory=mind, placement=placement, up=frozenset(owners))


@pytest.mark.parametrize("settings", [FLUID, AT_ONCE], ids=["fluid", "at once"])
def test_names_do_not_matter(settings: RescaleSettings) -> None:
    """Worlds with equal keys lead to worlds with equal keys: so one of them is enough."""
    checked = Model(settings)
    for world in model.first_worlds(crashes=1, requests=1, cancels=1):
        other = renamed(world, (2, 0, 1), (1, 2, 0))
        assert key(other) == key(world)
        ours, theirs = {key(world): world}, {key(other): other}
        for _ in range(6):
            ours = {key(e.world): e.world for w in ours.values() for e in checked.edges(w)}
            theirs = {key(e.world): e.world for w in theirs.values() for e in checked.edges(w)}
            assert set(ours) == set(theirs)
