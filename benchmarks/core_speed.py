"""How fast a core is at the moment: machines are shared, and what is measured on them with them."""

from __future__ import annotations

import time
from collections.abc import Sequence

TURNS = 400_000
TRIES = 3


def core_speed() -> float:
    """Turns of a plain loop in a second, on one core: the best of a few tries."""
    return TURNS / min(_seconds() for _ in range(TRIES))


def _seconds() -> float:
    started = time.perf_counter()
    total = 0
    for number in range(TURNS):
        total += number
    return time.perf_counter() - started


def told(speeds: Sequence[tuple[str, float]], slow: float = 0.8) -> str:
    """What a reader should know of the speeds beside the cases of a run; nothing without any."""
    known = [(name, speed) for name, speed in speeds if speed > 0]
    if not known:
        return ""
    best = max(speed for _, speed in known)
    shares = [(name, speed / best) for name, speed in known]
    least = min(share for _, share in shares)
    beside = "A loop on one core, timed beside every case, ran at"
    text = f"{beside} {_percent(least)} to 100 % of its best."
    slowed = [f"{name} {_percent(share)}" for name, share in shares if share < slow]
    if not slowed:
        return text
    compared = "so that what they are compared with may have had the faster machine"
    return f"{text} Slowest, {compared}: {', '.join(slowed)}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
