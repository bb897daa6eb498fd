"""What a worker is told in a step."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.messages import Barrier, End, Load, Message, in_order
from anabranch.records.step import Plan


def messages_for(
    plan: Plan, region: str | None, worker: int, loads: Iterable[Load]
) -> tuple[Message, ...]:
    """The messages of one worker, in the only order. ICA messages stay within their region."""
    found: list[Message] = [*loads]
    if plan.ending is not None:
        found.append(End(plan.ending))
    if plan.moves is None or region is None:
        found.append(Barrier(plan.step))
    else:
        found += plan.moves.messages(region, worker, plan.step)
    return in_order(found)
