"""Profile requests: the next step that reads input is profiled, and its commit answers them.

A step serves one request, so that profilers do not measure each other. Equal requests are answered
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from anabranch.coordinator.closing import refusal
from anabranch.coordinator.effects import Answer, Effect
from anabranch.coordinator.jobs.port import Job
from anabranch.coordinator.plans import current_placement
from anabranch.protocol.node import Failure, StepResult
from anabranch.records.plan import Plan
from anabranch.records.profiles import ProfileRequest
from anabranch.records.shares import members

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory

MOST_WAITING = 64


@dataclass(slots=True)
class ProfileJob(Job):
    """A queue of profile requests that no committed step has served."""

    waiting: tuple[tuple[int, ProfileRequest], ...] = ()

    def ask(self, number: int, request: ProfileRequest) -> None:
        """Queue a request."""
        self.waiting = (*self.waiting, (number, request))

    def refusal(self, memory: Memory, request: ProfileRequest) -> Failure | None:
        """Why a request cannot be served; None if it can."""
        if len(self.waiting) >= MOST_WAITING:
            what = f"{MOST_WAITING} profiles wait for a step, which is the most"
            return refusal(what, "They come with the next step that reads something.")
        keyed = [each for each in current_placement(memory) if not each.source]
        names = [each.region for each in keyed]
        if request.region is not None and request.region not in names:
            known = ", ".join(names) or "none"
            what = f"There is no region {request.region!r}"
            return refusal(what, f"Regions with workers: {known}.")
        workers = members([each for each in keyed if request.region in (None, each.region)])
        if request.worker not in workers:
            known = ", ".join(map(str, workers)) or "none"
            return refusal(f"There is no worker {request.worker}", f"Workers: {known}.")
        return None

    def on_commit(self, plan: Plan, result: StepResult) -> list[Effect]:
        """Answer the requests that a committed step has served."""
        request = plan.profile
        if request is msgspec.UNSET:
            return []
        numbers = [number for number, each in self.waiting if each == request]
        self.waiting = tuple(each for each in self.waiting if each[1] != request)
        if result.profiles:
            return [Answer(each, None, plan.step, result.profiles) for each in numbers]
        gone = refusal(
            f"Worker {request.worker} had no task in step {plan.step}",
            "Look at the status, ask again.",
        )
        return [Answer(each, gone) for each in numbers]

    def withdraw(self) -> tuple[int, ...]:
        """Drop all requests; returns their numbers."""
        numbers, self.waiting = tuple(number for number, _ in self.waiting), ()
        return numbers
