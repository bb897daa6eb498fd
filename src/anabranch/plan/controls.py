"""The control messages of a worker in a step."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.messages import Advance, Barrier, Load, Message, decode_message, in_order
from anabranch.records.plan import Plan


def planned_frontiers(plan: Plan) -> dict[str, int]:
    """The frontier of each operator in a step, for those that have one."""
    told = (decode_message(m.message) for part in plan.parts.values() for m in part.messages)
    return {message.operator: message.until for message in told if isinstance(message, Advance)}


def messages_for(
    plan: Plan, region: str | None, worker: int, loads: Iterable[Load]
) -> tuple[Message, ...]:
    """The messages of one worker, in protocol order. Those of a part stay within their region."""
    found: list[Message] = [*loads, Barrier(plan.step)]
    for each in plan.messages:
        if (each.region, each.worker) == (region, worker):
            found.append(decode_message(each.message))
    # By name: a revision may hold the parts in another order.
    for _, part in sorted(plan.parts.items()):
        found += [decode_message(each.message) for each in part.messages if each.region == region]
    return in_order(found)
