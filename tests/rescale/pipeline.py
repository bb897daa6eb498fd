"""A pipeline of plain Python around the real controller: rows, state by worker, a journal.

Each worker has its own dictionary, as with ``--isolate-workers`` and without a store to fall back
on: a row that comes to a worker without its bin's state, or a bin that is left behind, is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from anabranch.errors import OperationRefused
from anabranch.messages import AFTER_DATA, Acquire, Collect, Shutdown
from anabranch.protocol.rescale_requests import PauseRescale, RescaleRequest, ResumeRescale, Scale
from anabranch.records.placed import Assignment
from anabranch.records.shares import members
from anabranch.records.worker_load import BinLoad
from anabranch.rescale.apply_request import apply_request
from anabranch.rescale.controller import Rescale, after_commit, is_pending, plan_step
from anabranch.rescale.loads import Loads, RegionLoad
from anabranch.rescale.migration import Reports
from anabranch.rescale.rounds import RescaleSettings
from anabranch.rescale.step_moves import StepMoves
from tests.rescale.placed import all_told

DEFAULTS, NOTHING, SILENCE = RescaleSettings(), Rescale(), Reports()

Row = tuple[str, int, int]
"""Region, key, and a number that says when it came."""

State = dict[int, list[int]]
"""Key → the numbers of its rows, in the order in which they were worked on."""


@dataclass(frozen=True)
class Journalled:
    """What survives a crash: the value as bytes, and what the user was promised."""

    rescale: bytes
    wanted: RescaleRequest | None


@dataclass
class Pipeline:
    """Runs steps one after the other. A crash forgets what no journal entry has."""

    placement: tuple[Assignment, ...]
    settings: RescaleSettings = DEFAULTS
    sources: tuple[str, ...] = ()
    rescale: Rescale = NOTHING
    wanted: RescaleRequest | None = None
    held: dict[tuple[int, str, int], State] = field(default_factory=dict)
    handed: dict[tuple[str, int], State] = field(default_factory=dict)
    moves: StepMoves | None = None
    planned: Journalled | None = None
    late: Reports = SILENCE
    shut: list[int] = field(default_factory=list)
    steps: int = 0
    moved: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Every bin has an empty state at its owner."""
        for each in self.placement:
            for number, owner in enumerate(each.workers):
                self.held[owner, each.region, number] = {}
        self.committed = self._written()

    def _written(self) -> Journalled:
        return Journalled(msgspec.json.encode(self.rescale), self.wanted)

    def ask(self, asked: RescaleRequest) -> bool:
        """A request; False if it was refused."""
        try:
            self.rescale = apply_request(self.rescale, asked, self.placement)
        except OperationRefused:
            return False
        if not isinstance(asked, PauseRescale | ResumeRescale):
            self.wanted = asked
        return True

    def loads(self) -> Loads:
        """What is known of the bins, measured exactly."""
        return Loads(
            tuple(
                RegionLoad(
                    each.region,
                    tuple(
                        self._load(owner, each.region, number)
                        for number, owner in enumerate(each.workers)
                    ),
                    source=each.region in self.sources,
                )
                for each in self.placement
            )
        )

    def _load(self, owner: int, region: str, number: int) -> BinLoad:
        kept = self.held.get((owner, region, number), self.handed.get((region, number), {}))
        rows = sum(len(each) for each in kept.values())
        return BinLoad(len(kept), 8 * rows, float(rows), rows * 0.001)

    def plan(self) -> StepMoves:
        """Make the plan of the next step, or take the one that is in the journal."""
        if self.moves is None:
            recent = (0.1, 0.2)
            self.moves = plan_step(
                self.rescale, self.placement, self.loads(), recent, self.settings
            )
            self.planned = self._written()
        return self.moves

    def crash(self) -> None:
        """Forget everything but the journal."""
        kept = self.planned if self.moves is not None else self.committed
        assert kept is not None
        self.rescale, self.wanted = msgspec.json.decode(kept.rescale, type=Rescale), kept.wanted

    def step(self, rows: Iterable[Row] = (), report: str = "all") -> None:
        """Plan, run and commit a step. ``report`` says which reports come: all, none, or late."""
        moves = self.plan()
        self._run(moves, list(rows))
        reports = all_told(moves)
        if report != "all":
            reports, self.late = self.late if report == "late" else SILENCE, reports
        self.rescale = after_commit(self.rescale, moves, reports)
        assert all(
            now.generation >= before.generation
            for before, now in zip(self.placement, moves.placement, strict=True)
        )
        self.placement, self.moves, self.planned = moves.placement, None, None
        self.committed = self._written()
        self.steps += 1

    def _run(self, moves: StepMoves, rows: Sequence[Row]) -> None:
        everyone = {*members(moves.placement), *moves.shutdown}
        for each in moves.placement:
            for worker in sorted(everyone):
                for message in moves.messages(each.region, worker):
                    if isinstance(message, Acquire):
                        for number in message.bins:
                            self.held[worker, each.region, number] = self.handed.pop(
                                (each.region, number)
                            )
        assert not self.handed, f"collected, and nobody has acquired: {sorted(self.handed)}"
        for region, key, number in rows:
            self._work(moves, region, key, number)
        for each in moves.placement:
            for worker in sorted(everyone):
                after = [
                    message
                    for message in moves.messages(each.region, worker)
                    if isinstance(message, AFTER_DATA)
                ]
                for message in after:
                    if isinstance(message, Collect):
                        for number in message.bins:
                            place = (each.region, number)
                            self.handed[place] = self.held.pop((worker, *place))
                            self.moved.append(place)
        for worker in moves.shutdown:
            assert not [place for place in self.held if place[0] == worker], "R1: it has state"
            assert any(isinstance(m, Shutdown) for m in moves.messages("", worker))
            self.shut.append(worker)

    def _work(self, moves: StepMoves, region: str, key: int, number: int) -> None:
        (assignment,) = (each for each in moves.placement if each.region == region)
        place = key % len(assignment.workers)
        owners = [w for w in members([assignment]) if place in moves.owned(region, w)]
        assert len(owners) == 1, f"R1: {owners} own bin {place}"
        kept = self.held.get((owners[0], region, place))
        assert kept is not None, f"R2: worker {owners[0]} has no state of bin {place}"
        kept.setdefault(key, []).append(number)

    def finish(self, bound: int = 2_000) -> None:
        """Steps without input until nothing is pending (R8)."""
        for _ in range(bound):
            if self.moves is None and not is_pending(self.rescale):
                return
            self.step()
        raise AssertionError(f"R8: not over after {bound} steps: {self.rescale.phase}")

    def result(self) -> dict[str, State]:
        """All state by region, wherever it is."""
        found: dict[str, State] = {each.region: {} for each in self.placement}
        for (_, region, _), kept in self.held.items():
            found[region].update(kept)
        for (region, _), kept in self.handed.items():
            found[region].update(kept)
        return found


def without_rescale(rows: Iterable[Row], regions: Iterable[str]) -> dict[str, State]:
    """What the rows come to when nothing ever moves."""
    found: dict[str, State] = {region: {} for region in regions}
    for region, key, number in rows:
        found[region].setdefault(key, []).append(number)
    return found


def is_scale(asked: RescaleRequest | None) -> bool:
    """Whether this many workers were asked for."""
    return isinstance(asked, Scale) and asked.workers is not None
