"""Profile requests: the next step that reads input is profiled, and its commit answers them.

A step serves one request, so that profilers do not measure each other. Equal requests are answered
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from anabranch.coordinator.closing import needs_commit, needs_steps, refusal
from anabranch.coordinator.effects import Answer, Effect
from anabranch.coordinator.jobs.port import Job
from anabranch.coordinator.operations import ProfileWorker
from anabranch.coordinator.plans import current_placement
from anabranch.protocol.node import Failure, StepResult
from anabranch.records.plan import Plan
from anabranch.records.shares import members

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory

MOST_WAITING = 64


@dataclass(slots=True)
class ProfileJob(Job[ProfileWorker]):
    """A queue of profile requests that no committed step has served."""

    takes = (ProfileWorker,)

    def refusal(self, memory: Memory, operation: ProfileWorker) -> Failure | None:
        """Why a request cannot be served; None if it can."""
        request, refused = operation.request, needs_commit(memory) or needs_steps(memory)
        if refused is not None:
            return refused
        if len(self.queue) >= MOST_WAITING:
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
        numbers = [number for number, each in self.queue if each.request == request]
        self.queue = [each for each in self.queue if each[1].request != request]
        if result.profiles:
            return [Answer(each, None, plan.step, result.profiles) for each in numbers]
        gone = refusal(
            f"Worker {request.worker} had no task in step {plan.step}",
            "Look at the status, ask again.",
        )
        return [Answer(each, gone) for each in numbers]
