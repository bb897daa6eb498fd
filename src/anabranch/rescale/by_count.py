"""Balancing by the number of bins, with the fewest bytes moved."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.rescale.membership import Owners, bins_worth


def by_count(
    owners: Owners, size: Sequence[int], heat: Sequence[float], members: Sequence[int]
) -> Owners:
    """Share the bins equally among ``members``: counts differ by one at most.

    No other such assignment moves fewer bytes, or as many bytes with fewer bins. A balanced
    assignment stays as it is. Bins that must move go, hottest first, to the least busy member.

    >>> by_count((0, 0, 0, 0), [5, 1, 1, 5], [0, 0, 0, 0], (0, 1))
    (0, 1, 1, 0)
    """
    members = sorted(members)
    floor, extra = divmod(len(owners), len(members))
    worth = bins_worth(size)
    held: dict[int, list[int]] = {worker: [] for worker in members}
    for number in sorted(range(len(owners)), key=lambda each: (-worth[each], each)):
        if owners[number] in held:
            held[owners[number]].append(number)
    next_worth = {w: worth[bins[floor]] if len(bins) > floor else 0 for w, bins in held.items()}
    kept_heat = {w: sum(heat[each] for each in bins[:floor]) for w, bins in held.items()}
    larger = sorted(members, key=lambda w: (-next_worth[w], kept_heat[w], w))[:extra]
    room = {worker: floor + (worker in larger) for worker in members}
    found: dict[int, int] = {}
    for worker, bins in held.items():
        found.update((number, worker) for number in bins[: room[worker]])
    return _assign_rest(found, heat, room, len(owners))


def _assign_rest(
    found: dict[int, int], heat: Sequence[float], room: dict[int, int], bins: int
) -> Owners:
    """Give each bin without an owner to the least busy worker with room."""
    busy = dict.fromkeys(room, 0.0)
    left = dict(room)
    for number, worker in found.items():
        busy[worker] += heat[number]
        left[worker] -= 1
    leaving = (number for number in range(bins) if number not in found)
    for number in sorted(leaving, key=lambda each: (-heat[each], each)):
        worker = min((w for w in left if left[w]), key=lambda w: (busy[w], -left[w], w))
        found[number] = worker
        busy[worker] += heat[number]
        left[worker] -= 1
    return tuple(found[number] for number in range(bins))
