"""Profiles: the next step that reads something is run under one, and who has asked is told.

One wish at a time: a step that is looked at in two ways would tell of the looking. Those who have
the same wish are answered together.
"""

from __future__ import annotations

import msgspec

from anabranch.coordinator.closing import refusal
from anabranch.coordinator.effects import Answer, Effect
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.plans import where_bins_are
from anabranch.protocol.node import Failure, StepResult
from anabranch.records.plan import Plan
from anabranch.records.profiles import ProfileRequest
from anabranch.records.shares import members

MOST_WAITING = 64


def profile_refusal(memory: Memory, request: ProfileRequest) -> Failure | None:
    """Why a wish cannot come true, None if it can."""
    if len(memory.profiles) >= MOST_WAITING:
        what = f"{MOST_WAITING} profiles wait for a step, which is the most"
        return refusal(what, "They come with the next step that reads something.")
    keyed = [each for each in where_bins_are(memory) if not each.source]
    names = [each.region for each in keyed]
    if request.region is not None and request.region not in names:
        known = ", ".join(names) or "none"
        return refusal(f"There is no region {request.region!r}", f"Regions with workers: {known}.")
    asked = [each for each in keyed if request.region in (None, each.region)]
    workers = members(asked)
    if request.worker not in workers:
        known = ", ".join(map(str, workers)) or "none"
        return refusal(f"There is no worker {request.worker}", f"Workers: {known}.")
    return None


def on_committed(memory: Memory, plan: Plan, result: StepResult) -> list[Effect]:
    """Tell who has wished for the profile of a step that is committed now."""
    request = plan.profile
    if request is msgspec.UNSET:
        return []
    numbers = [number for number, each in memory.profiles if each == request]
    memory.profiles = tuple(each for each in memory.profiles if each[1] != request)
    if result.profiles:
        return [Answer(each, None, plan.step, result.profiles) for each in numbers]
    gone = refusal(
        f"Worker {request.worker} had no task in step {plan.step}", "Look at the status, ask again."
    )
    return [Answer(each, gone) for each in numbers]
