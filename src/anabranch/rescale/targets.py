"""Which assignment is wanted: from a wish, the placement and the loads to a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from itertools import count as numbers

from anabranch.errors import OperationRefused
from anabranch.protocol.rescale_requests import Assign, Balance, Rebalance, Scale, TargetRequest
from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares, members
from anabranch.rescale.by_count import by_count
from anabranch.rescale.by_load import by_load
from anabranch.rescale.loads import Loads, weights
from anabranch.rescale.membership import KeptByCount, choose_members, weighed


def check_request(request: TargetRequest, placement: Sequence[Assignment]) -> None:
    """Refuse what cannot be done, with the reason: ``OperationRefused``."""
    known = {each.region: each for each in placement}
    named: list[str] = []
    match request:
        case Scale():
            named = [region for region, _ in request.regions]
            counts = [count for _, count in request.regions]
            counts += [] if request.workers is None else [request.workers]
            if any(count < 1 for count in counts):
                raise _refused("a region needs at least one worker")
            if not counts and not request.remove:
                raise _refused("neither a number of workers nor workers to remove are given")
            strange = sorted(set(request.remove) - set(members(placement)))
            if strange:
                raise _refused(f"there is no worker {strange[0]}")
            if request.workers is None:
                _check_left(request, placement)
        case Rebalance():
            named = list(request.regions)
        case Assign():
            named = [shares.region for shares in request.shares]
            for shares in request.shares:
                assignment = known.get(shares.region)
                if assignment is not None and len(shares.workers) > len(assignment.workers):
                    raise _refused(f"{shares.region!r} has {len(assignment.workers)} bins")
                if any(worker < 0 for worker in shares.workers):
                    raise _refused("a worker's number is not negative")
    for region in named:
        if region not in known:
            raise _refused(f"there is no region {region!r}")


def _check_left(request: Scale, placement: Sequence[Assignment]) -> None:
    counted = {region for region, _ in request.regions}
    for each in placement:
        if each.workers and each.region not in counted and set(each.workers) <= set(request.remove):
            raise _refused(f"{each.region!r} would be left without a worker")


def _refused(why: str) -> OperationRefused:
    return OperationRefused(f"This rescale cannot be done: {why}", do="Nothing was changed.")


def target_for(
    request: TargetRequest, placement: Sequence[Assignment], loads: Loads
) -> tuple[Shares, ...]:
    """The shares that a wish comes to: a function of its arguments, with no regard to order.

    It moves the fewest bytes for the balance asked for; asked again when it is reached, it moves
    nothing. A region has no more workers than bins.
    """
    match request:
        case Assign():
            exact = {shares.region: shares.workers for shares in request.shares}
            return tuple(_overlaid(each, exact.get(each.region, ())) for each in placement)
        case Rebalance():
            chosen = [e for e in placement if not request.regions or e.region in request.regions]
            staying = {each.region: members([each]) for each in chosen}
            return _balanced(placement, staying, request.by, loads)
        case Scale():
            return _balanced(placement, _members(request, placement, loads), request.by, loads)


def _overlaid(assignment: Assignment, exact: tuple[int, ...]) -> Shares:
    return Shares(assignment.region, exact + assignment.workers[len(exact) :])


def _members(
    request: Scale, placement: Sequence[Assignment], loads: Loads
) -> dict[str, tuple[int, ...]]:
    """The workers of each region that changes.

    Regions with equal counts get the same workers, and one with fewer gets some of those of one
    with more: so that as few workers as possible have anything at all.
    """
    banned = frozenset(request.remove)
    counts = {each.region: _count(request, each, banned) for each in placement if each.workers}
    wanted = {region: count for region, count in counts.items() if count is not None}
    found: dict[str, tuple[int, ...]] = {}
    allowed: frozenset[int] | None = None
    for count in sorted(set(wanted.values()), reverse=True):
        alike = [each for each in placement if wanted.get(each.region) == count]
        kept = [_kept(each, loads, count) for each in alike]
        owning = set(members(alike)) - banned
        others: Iterable[int] = (w for w in chain(members(placement), numbers()) if w not in banned)
        if allowed is not None:
            owning, others = owning & allowed, sorted(allowed)
        chosen = choose_members(sorted(owning), count, kept, others)
        found.update((each.region, chosen) for each in alike)
        if request.workers is not None:
            allowed = frozenset(chosen)
    return found


def _count(request: Scale, assignment: Assignment, banned: frozenset[int]) -> int | None:
    """How many workers a region is to have; None where it stays as it is."""
    count = dict(request.regions).get(assignment.region, request.workers)
    if count is not None:
        return count
    owning = set(assignment.workers)
    # Bins may have gone to a worker that is to be removed since it was asked for: if it has them
    # all by now, another one takes its place.
    return max(1, len(owning - banned)) if owning & banned else None


def _kept(assignment: Assignment, loads: Loads, count: int) -> KeptByCount:
    size = _sizes(assignment, loads)
    return KeptByCount(assignment.workers, weighed(size), count)


def _sizes(assignment: Assignment, loads: Loads) -> list[int]:
    region = loads.of(assignment.region)
    return [region.bin(number).bytes for number in range(len(assignment.workers))]


def _balanced(
    placement: Sequence[Assignment],
    staying: dict[str, tuple[int, ...]],
    by: Balance,
    loads: Loads,
) -> tuple[Shares, ...]:
    found = []
    for each in placement:
        workers = staying.get(each.region)
        if not workers or not each.workers:
            found.append(Shares(each.region, each.workers))
            continue
        size = _sizes(each, loads)
        weight = weights(loads.of(each.region), len(each.workers))
        share = by_count if by is Balance.BINS else by_load
        found.append(Shares(each.region, share(each.workers, size, weight, workers)))
    return tuple(found)
