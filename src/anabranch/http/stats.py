"""Statistics of the recent steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from anabranch.http.feed import TimedStep
from anabranch.http.schemas import Latency, Stats
from anabranch.protocol.status import Status

RATE_SECONDS = 60.0
SHOWN = 60


def stats_of(status: Status, seen: Sequence[TimedStep], now: float) -> Stats:
    """The statistics at one moment; ``now`` is by the clock that stamped ``seen``."""
    steps = [one.done for one in seen]
    parts: Counter[str] = Counter()
    for done in steps:
        parts.update(done.parts)
    return Stats(
        phase=status.phase,
        step=status.step,
        rows=status.rows,
        keys=sum(region.keys for region in status.regions),
        bytes=sum(region.bytes for region in status.regions),
        rows_per_second=rows_per_second(seen, now),
        latency=latency_of([done.seconds for done in steps]) if steps else None,
        parts=dict(parts),
        lag=steps[-1].lag if steps else {},
        recent=tuple(steps[-SHOWN:]),
    )


def rows_per_second(seen: Sequence[TimedStep], now: float) -> float:
    """The rate of committed rows over the last minute, or since the first step in it began."""
    late = [one for one in seen if one.at > now - RATE_SECONDS]
    if not late:
        return 0.0
    began = min(late[0].at - late[0].done.seconds, now)
    return sum(one.done.rows for one in late) / max(now - began, 1e-3)


def latency_of(seconds: Sequence[float]) -> Latency:
    """The median, the 95th percentile and the maximum.

    >>> latency_of([0.1, 0.2, 0.3])
    Latency(median=0.2, p95=0.3, longest=0.3)
    """
    ordered = sorted(seconds)
    return Latency(median(ordered), ordered[math.ceil(len(ordered) * 0.95) - 1], ordered[-1])
