"""A small world around the real controller, and a search through everything that can happen in it.

One region, three workers, three bins. The world plans, commits, crashes, loses reports or gives
them late, and asks for things; what the controller makes of it is the controller's own doing: its
functions are the transitions. The world keeps its own account of where the state of each bin is.

Worlds that differ only in the names of workers and bins are one. That is sound because every
request is possible and every order of the bins by heat: the controller's choices by number
disappear.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import permutations, product
from typing import NamedTuple

from anabranch.errors import OperationRefused
from anabranch.protocol.rescale_requests import (
    Assign,
    CancelRescale,
    PauseRescale,
    RescaleRequest,
    ResumeRescale,
)
from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares
from anabranch.records.worker_load import BinLoad
from anabranch.rescale import apply_request, controller
from anabranch.rescale.controller import Rescale, is_pending
from anabranch.rescale.loads import Loads, RegionLoad
from anabranch.rescale.migration import Migration, Reports
from anabranch.rescale.phases import (
    Cancelling,
    Interrogating,
    Moving,
    Paused,
    RollingBack,
    Settled,
    Steady,
)
from anabranch.rescale.rounds import RescaleSettings
from anabranch.rescale.step_moves import StepMoves
from tests.rescale.placed import REGION, all_told

WORKERS = (0, 1, 2)
BINS = 3
NOBODY = -1

Owners = tuple[int, ...]
HEATS = tuple(
    Loads((RegionLoad(REGION, tuple(BinLoad(1, 1, 0.0, float(h)) for h in heat)),))
    for heat in permutations((1, 2, 3))
)
NO_REPORTS = Reports(0.0)
EVERY_TARGET = tuple(product(WORKERS, repeat=BINS))
CLEAR_TARGETS = tuple(each for each in EVERY_TARGET if len(set(each)) in (1, BINS))
"""What a rescale that is under way is replaced by: all on one worker, or one on each."""


class Violation(AssertionError):
    """A rule is broken; the story that led there is in the message."""


class Mind(NamedTuple):
    """What a coordinator knows, and what the world knows that it should be aiming at."""

    rescale: Rescale
    wanted: Owners | None
    origin: Owners


@dataclass(frozen=True)
class World:
    """Everything that there is between two events.

    ``journal`` is in the last commit; ``planned`` in the plan that has no commit yet, with the
    plan itself; ``memory`` is lost in a crash. ``at`` is the worker that has the state of each bin,
    ``left`` who it was handed to by the last committed step. ``up`` are workers that have bins or
    files.
    """

    journal: Mind
    memory: Mind
    placement: Assignment
    up: frozenset[int]
    left: tuple[int, ...] = (NOBODY,) * BINS
    planned: Mind | None = None
    plan: StepMoves | None = None
    late: Reports = NO_REPORTS
    crashes: int = 2
    requests: int = 2
    cancels: int = 1
    pauses: int = 0


class Edge(NamedTuple):
    """An event: its name, what it leads to, and whether it happens without anybody's doing."""

    name: str
    world: World
    quiet: bool


def first_worlds(**bounds: int) -> list[World]:
    """A steady world for each way to share three bins; the names of workers do not matter."""
    found = []
    for owners in ((0, 0, 0), (0, 0, 1), (0, 1, 2)):
        mind = Mind(Rescale(workers=tuple(sorted(set(owners)))), None, owners)
        placement = Assignment(REGION, 1, owners)
        found.append(World(mind, mind, placement, frozenset(owners), **bounds))  # type: ignore[arg-type]
    return found


class Model:
    """The worlds that follow a world, by the controller's functions, with the rules checked."""

    def __init__(self, settings: RescaleSettings) -> None:
        self.settings = settings
        # The functions are looked up when a model is made: a test may have put others there.
        self._plans = lru_cache(maxsize=None)(self._plans_of)
        self._after_commit = controller.after_commit
        self._request = apply_request.apply_request

    def edges(self, world: World) -> Iterator[Edge]:
        """Everything that can happen next."""
        pending = is_pending(world.memory.rescale)
        if world.plan is None:
            yield from self._planning(world, pending)
        else:
            yield from self._committing(world, world.plan)
        remembered = world.planned or world.journal
        if world.crashes and remembered != world.memory:
            # A crash that forgets nothing changes nothing: the same plan runs again.
            crashed = replace(world, memory=remembered, crashes=world.crashes - 1)
            yield Edge("crash", crashed, False)
        yield from self._asking(world)

    def _plans_of(self, rescale: Rescale, placement: Assignment) -> tuple[StepMoves, ...]:
        found: list[StepMoves] = []
        for heat in HEATS:
            moves = controller.plan_step(rescale, (placement,), heat, (0.1,), self.settings)
            if moves not in found:
                found.append(moves)
        return tuple(found)

    def _planning(self, world: World, pending: bool) -> Iterator[Edge]:
        for moves in self._plans(world.memory.rescale, world.placement):
            check_step(world, moves)
            yield Edge("plan", replace(world, planned=world.memory, plan=moves), pending)

    def _committing(self, world: World, plan: StepMoves) -> Iterator[Edge]:
        told = all_told(plan)
        yield Edge("commit", self._committed(world, plan, told, NO_REPORTS), True)
        if told.loads or told.prefetched:
            yield Edge("commit, nobody tells", self._committed(world, plan, NO_REPORTS, told), True)
        if world.late != NO_REPORTS:
            late = self._committed(world, plan, world.late, NO_REPORTS)
            yield Edge("commit, told late", late, True)
        if world.planned != world.memory:
            # Another revision of the plan, made from what is known now.
            for moves in self._plans(world.memory.rescale, world.placement):
                check_step(world, moves)
                yield Edge("revise", replace(world, planned=world.memory, plan=moves), True)

    def _committed(self, world: World, plan: StepMoves, told: Reports, late: Reports) -> World:
        mind = world.memory
        rescale = self._after_commit(mind.rescale, plan, told)
        mind = mind._replace(rescale=rescale)
        left = {move.bin: move.to_worker for move in plan.collect}
        joined = {move.to_worker for move in (*plan.prefetch, *plan.collect)}
        owners = plan.placement[0].workers
        return replace(
            world,
            journal=mind,
            memory=mind,
            planned=None,
            plan=None,
            placement=plan.placement[0],
            left=tuple(left.get(number, NOBODY) for number in range(BINS)),
            up=frozenset((world.up | set(owners) | joined) - set(plan.shutdown)),
            late=late,
        )

    def _asking(self, world: World) -> Iterator[Edge]:
        here = _arrived(world)
        if world.requests:
            steady = isinstance(world.memory.rescale.phase, Steady)
            for target in EVERY_TARGET if steady else CLEAR_TARGETS:
                if target != here:
                    request = Assign((Shares(REGION, target),))
                    yield from self._asked(world, request, target, requests=world.requests - 1)
        if world.cancels:
            yield from self._asked(world, CancelRescale(), None, cancels=world.cancels - 1)
            back = world.memory.origin
            yield from self._asked(world, CancelRescale(True), back, cancels=world.cancels - 1)
        if world.pauses:
            same = world.memory.wanted
            yield from self._asked(world, PauseRescale(), same, pauses=world.pauses - 1)
        yield from self._asked(world, ResumeRescale(), world.memory.wanted)

    def _asked(
        self, world: World, asked: RescaleRequest, wanted: Owners | None, **bounds: int
    ) -> Iterator[Edge]:
        mind = world.memory
        try:
            rescale = self._request(mind.rescale, asked, (world.placement,))
        except OperationRefused:
            return
        if rescale == mind.rescale:
            return
        over = isinstance(mind.rescale.phase, Steady | Settled)
        origin = _arrived(world) if over else mind.origin
        changed = replace(world, memory=Mind(rescale, wanted, origin), **bounds)  # type: ignore[arg-type]
        check_mind(changed.memory)
        name = f"{type(asked).__name__} {'' if wanted is None else wanted}"
        yield Edge(name, changed, False)


def _arrived(world: World) -> Owners:
    """Where the bins are, those in hand-over counted at their new owners."""
    pairs = zip(world.placement.workers, world.left, strict=True)
    return tuple(now if to == NOBODY else to for now, to in pairs)


# ---------------------------------------------------------------------------------------- the rules


def check_step(world: World, moves: StepMoves) -> None:
    """R1, R2 and that no bin is lost, of a step that is planned in a world."""
    (assignment,) = moves.placement
    if assignment.generation < world.placement.generation:
        raise Violation("a generation goes back")
    acquired = {move.bin: move.to_worker for move in moves.acquire}
    if len(acquired) != len(moves.acquire) or len({m.bin for m in moves.collect}) != len(
        moves.collect
    ):
        raise Violation("R1: a bin is handed over twice in a step")
    told = dict.fromkeys(range(BINS), 0)
    for worker in WORKERS:
        for message in moves.messages(REGION, worker):
            if type(message).__name__ == "Acquire":
                for number in message.bins:  # type: ignore[union-attr]
                    told[number] += 1
    for number in range(BINS):
        owners = [worker for worker in WORKERS if number in moves.owned(REGION, worker)]
        if len(owners) != 1:
            raise Violation(f"R1: bin {number} has the owners {owners} in one step")
        (owner,) = owners
        had, to = world.placement.workers[number], world.left[number]
        if to == NOBODY:
            if owner != had:
                raise Violation(f"R2: worker {owner} has bin {number}, which nobody collected")
            if number in acquired or told[number]:
                raise Violation(f"R2: bin {number} is acquired, and nobody collected it")
        elif owner != to or acquired.get(number) != to or told[number] != 1:
            raise Violation(f"bin {number} is lost: it was handed to {to}, and {owner} works on it")
        for move in moves.collect:
            if move.bin == number and move.from_worker != owner:
                raise Violation(f"R2: bin {number} is collected from {move.from_worker}, not there")
    if set(moves.shutdown) & set(assignment.workers):
        raise Violation("a worker with bins is shut down")
    if set(moves.shutdown) - world.up:
        raise Violation("a worker is shut down twice")


def check_mind(mind: Mind) -> None:
    """That the way back leads where it should."""
    phase = mind.rescale.phase
    inner = phase.inner if isinstance(phase, Paused) else phase
    origin = inner.migration.target if isinstance(inner, RollingBack) else None
    if isinstance(inner, Interrogating | Moving | Cancelling):
        origin = inner.origin
    if origin is not None and origin[0].workers != mind.origin:
        raise Violation(f"{origin[0].workers} is taken for the way back to {mind.origin}")


def check_end(world: World) -> None:
    """Of a world in which nothing more happens by itself: what was wanted has come about."""
    rescale = world.memory.rescale
    if rescale.handing or any(to != NOBODY for to in world.left):
        raise Violation("a bin is left in hand-over")
    if isinstance(rescale.phase, Paused):
        return
    if not isinstance(rescale.phase, Steady):
        raise Violation(f"a rescale has stopped in {type(rescale.phase).__name__}")
    wanted = world.memory.wanted
    if wanted is not None and world.placement.workers != wanted:
        raise Violation(f"{wanted} was wanted, and it is {world.placement.workers}")
    if world.up != frozenset(world.placement.workers):
        raise Violation(f"workers {sorted(world.up)} are up: some have no bins")


# --------------------------------------------------------------------------------------- symmetry

FREE = 3
"""Stands for no worker in the rows of bytes below; steps are above ``STEPS``."""

STEPS = 16
RENAMED = tuple(bytes((*names, *range(FREE, 256))) for names in permutations(WORKERS))
_SETS = tuple(
    tuple(sum(1 << names[w] for w in WORKERS if members >> w & 1) for members in range(8))
    for names in RENAMED
)
Rows = tuple[bytes, ...]
NO_ROWS: Rows = (b"",) * BINS


def _rows(*columns: Owners | None) -> Rows:
    """Columns of one number per bin as a row of bytes for each bin."""
    filled = [(NOBODY,) * BINS if column is None else column for column in columns]
    return tuple(
        bytes([FREE if w == NOBODY else w for w in row]) for row in zip(*filled, strict=True)
    )


def _by_bin(ends: Iterable[tuple[int, int]]) -> Owners:
    found = dict(ends)
    return tuple(found.get(number, NOBODY) for number in range(BINS))


@cache
def _migration_rows(migration: Migration | None) -> Rows:
    if migration is None:
        return NO_ROWS
    return _rows(
        migration.target[0].workers,
        _by_bin((each.bin, each.to_worker) for each in migration.copying),
        _by_bin((each.bin, STEPS + each.steps) for each in migration.copying),
        _by_bin((number, worker) for _, number, worker in migration.ready),
    )


def _joined(*parts: Rows) -> Rows:
    return tuple(b"".join(each) for each in zip(*parts, strict=True))


@cache
def _mind_key(mind: Mind, cancels: int) -> tuple[Rows, tuple[object, ...]]:
    """A row of numbers for each bin, and what has nothing to do with names."""
    rescale = mind.rescale
    phase = rescale.phase
    inner = phase.inner if isinstance(phase, Paused) else phase
    migration = getattr(inner, "migration", None)
    request = inner.request if isinstance(inner, Interrogating) else None
    rows = _rows(
        mind.wanted,
        mind.origin if cancels else None,  # without a way back it says nothing
        _by_bin((move.bin, move.from_worker) for move in rescale.handing),
        _by_bin((move.bin, move.to_worker) for move in rescale.handing),
        request.shares[0].workers if isinstance(request, Assign) else None,
    )
    plain = (
        type(phase).__name__,
        type(inner).__name__,
        getattr(inner, "answered", None),
        getattr(inner, "waited", None),
        getattr(inner, "outcome", None),
        migration is not None and migration.announced,
        mind.wanted is None,
    )
    return _joined(rows, _migration_rows(migration)), plain


def _mask(workers: Iterable[int]) -> int:
    return sum(1 << worker for worker in workers)


def key(world: World) -> tuple[object, ...]:
    """The same for all worlds that differ only in the names of workers and bins."""
    parts = [_rows(world.placement.workers, world.left)]
    base = world.journal.rescale.turn
    plain: list[object] = [world.crashes, world.requests, world.cancels, world.pauses]
    sets = [_mask(world.up)]
    for mind in (world.journal, world.memory, world.planned):
        if mind is None:
            plain.append(None)
            continue
        rows, theirs = _mind_key(mind, world.cancels)
        parts.append(rows)
        plain += [theirs, mind.rescale.turn - base]
        sets.append(_mask(mind.rescale.workers))
    plan = world.plan
    if plan is not None:
        parts.append(_plan_rows(plan))
        sets.append(_mask(plan.shutdown))
        plain += [plan.turn - base, plan.asked, bool(plan.announced), plan.settles]
    plain += [bool(world.late.loads) and _is_current(world), len(world.late.prefetched)]
    parts.append(_rows(_by_bin((each.bin, each.to_worker) for each in world.late.prefetched)))
    rows = _joined(*parts)
    names = range(len(RENAMED))
    return (tuple(plain), repr(min(_renamed(rows, sets, each) for each in names)))


@cache
def _plan_rows(plan: StepMoves) -> Rows:
    moved = (
        _by_bin((move.bin, move.to_worker) for move in moves)
        for moves in (plan.acquire, plan.collect, plan.prefetch)
    )
    return _joined(_rows(plan.placement[0].workers, *moved), _migration_rows(plan.migration))


def _is_current(world: World) -> bool:
    return world.late.loads[0].generation == world.placement.generation


def _renamed(rows: Rows, sets: list[int], names: int) -> tuple[object, ...]:
    """The rows of the bins with workers renamed, in order: so the names of bins disappear too."""
    table, masks = RENAMED[names], _SETS[names]
    return (sorted([row.translate(table) for row in rows]), [masks[each] for each in sets])


# ----------------------------------------------------------------------------------------- search


@dataclass
class Found:
    """What a search has come to."""

    worlds: int
    events: int
    ends: int


def search(settings: RescaleSettings, **bounds: int) -> Found:
    """Look at every world that can come about; ``Violation`` with the story if a rule is broken.

    That every path of quiet events ends is checked at the end: no circle is left in them.
    """
    model = Model(settings)
    seen: dict[tuple[object, ...], int] = {}
    parents: list[tuple[int, str]] = []
    quiet: list[set[int]] = []
    queue: deque[tuple[int, World]] = deque()
    ends = events = 0

    def visit(world: World, parent: int, name: str) -> int:
        code = key(world)
        number = seen.get(code)
        if number is None:
            number = seen[code] = len(parents)
            parents.append((parent, name))
            quiet.append(set())
            queue.append((number, world))
        return number

    for world in first_worlds(**bounds):
        visit(world, -1, f"{world.placement.workers}")
    while queue:
        number, world = queue.popleft()
        try:
            if world.plan is None and not is_pending(world.memory.rescale):
                ends += 1
                check_end(world)
            for edge in model.edges(world):
                events += 1
                following = visit(edge.world, number, edge.name)
                if edge.quiet:
                    quiet[number].add(following)
        except Violation as broken:
            raise Violation(f"{broken}\n{story(parents, number)}") from None
    circle = find_circle(quiet)
    if circle is not None:
        raise Violation(f"R8: it never ends\n{story(parents, circle)}")
    return Found(len(parents), events, ends)


def story(parents: list[tuple[int, str]], number: int) -> str:
    """The events that led to a world."""
    names = []
    while number >= 0:
        number, name = parents[number]
        names.append(name)
    return " → ".join(reversed(names))


def find_circle(edges: list[set[int]]) -> int | None:
    """A node that lies on a circle, or leads to one; None where there is none."""
    waiting = [len(following) for following in edges]
    before: list[list[int]] = [[] for _ in edges]
    for number, following in enumerate(edges):
        for each in following:
            before[each].append(number)
    free = [number for number, count in enumerate(waiting) if not count]
    done = 0
    while free:
        done += 1
        for number in before[free.pop()]:
            waiting[number] -= 1
            if not waiting[number]:
                free.append(number)
    if done == len(edges):
        return None
    return next(number for number, count in enumerate(waiting) if count)
