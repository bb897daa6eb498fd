"""The target assignment of a request, from the placement and the loads."""

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
from anabranch.rescale.membership import KeptByCount, bins_worth, choose_members


def check_request(request: TargetRequest, placement: Sequence[Assignment]) -> None:
    """Raise ``OperationRefused``, with the reason, for a request that cannot be fulfilled."""
    known = {each.region: each for each in placement}
    named: list[str] = []
    match request:
        case Scale():
            named = [region for region, _ in request.regions]
            counts = [count for _, count in request.regions]
            counts += [] if request.workers is None else [request.workers]
            if any(count < 1 for count in counts):
                raise _refusal("a region needs at least one worker")
            if not counts and not request.remove:
                raise _refusal("it names neither a number of workers nor workers to remove")
            strange = sorted(set(request.remove) - set(members(placement)))
            if strange:
                raise _refusal(f"there is no worker {strange[0]}")
            if request.workers is None:
                _check_left(request, placement)
        case Rebalance():
            named = list(request.regions)
        case Assign():
            named = [shares.region for shares in request.shares]
            for shares in request.shares:
                assignment = known.get(shares.region)
                if assignment is not None and len(shares.workers) > len(assignment.workers):
                    raise _refusal(f"{shares.region!r} has {len(assignment.workers)} bins")
                if any(worker < 0 for worker in shares.workers):
                    raise _refusal("worker numbers cannot be negative")
    for region in named:
        if region not in known:
            raise _refusal(f"there is no region {region!r}")


def _check_left(request: Scale, placement: Sequence[Assignment]) -> None:
    counted = {region for region, _ in request.regions}
    for each in placement:
        if each.workers and each.region not in counted and set(each.workers) <= set(request.remove):
            raise _refusal(f"{each.region!r} would be left without a worker")


def _refusal(why: str) -> OperationRefused:
    return OperationRefused(f"This rescale cannot be done: {why}", do="Nothing was changed.")


def target_for(
    request: TargetRequest, placement: Sequence[Assignment], loads: Loads
) -> tuple[Shares, ...]:
    """The target shares of a request: a pure function of its arguments, in any order.

    It moves the fewest bytes for the requested balance; repeating a fulfilled request moves
    nothing. A region has no more workers than bins.
    """
    match request:
        case Assign():
            exact = {shares.region: shares.workers for shares in request.shares}
            return tuple(_overlay(each, exact.get(each.region, ())) for each in placement)
        case Rebalance():
            chosen = [e for e in placement if not request.regions or e.region in request.regions]
            staying = {each.region: members([each]) for each in chosen}
            return _balance(placement, staying, request.by, loads)
        case Scale():
            return _balance(placement, _members(request, placement, loads), request.by, loads)


def _overlay(assignment: Assignment, exact: tuple[int, ...]) -> Shares:
    return Shares(assignment.region, exact + assignment.workers[len(exact) :])


def _members(
    request: Scale, placement: Sequence[Assignment], loads: Loads
) -> dict[str, tuple[int, ...]]:
    """The workers of each region that changes.

    Regions with equal counts get the same workers, and a region with fewer gets a subset of those
    of one with more, so that as few workers as possible are in use.
    """
    banned = frozenset(request.remove)
    counts = {each.region: _count(request, each, banned) for each in placement if each.workers}
    wanted = {region: count for region, count in counts.items() if count is not None}
    found: dict[str, tuple[int, ...]] = {}
    allowed: frozenset[int] | None = None
    for count in sorted(set(wanted.values()), reverse=True):
        alike = [each for each in placement if wanted.get(each.region) == count]
        kept = [KeptByCount(each.workers, bins_worth(_sizes(each, loads)), count) for each in alike]
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
    """The number of workers that a region should have; None if it stays as it is."""
    count = dict(request.regions).get(assignment.region, request.workers)
    if count is not None:
        return count
    owning = set(assignment.workers)
    # Since the request, bins may have moved to a worker that it removes: if that worker has all of
    # them by now, another one takes its place.
    return max(1, len(owning - banned)) if owning & banned else None


def _sizes(assignment: Assignment, loads: Loads) -> list[int]:
    region = loads.of(assignment.region)
    return [region.bin(number).bytes for number in range(len(assignment.workers))]


def _balance(
    placement: Sequence[Assignment], staying: dict[str, tuple[int, ...]], by: Balance, loads: Loads
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
