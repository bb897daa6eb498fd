"""Assembles a coordinator's initial memory with all its jobs."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.coordinator.batch_size import BatchSize
from anabranch.coordinator.jobs.checkpoint import CheckpointJob
from anabranch.coordinator.jobs.load import LoadJob
from anabranch.coordinator.jobs.paused_sources import PausedSourcesJob
from anabranch.coordinator.jobs.profile import ProfileJob
from anabranch.coordinator.jobs.replay import ReplayJob
from anabranch.coordinator.jobs.shutdown import ShutdownJob
from anabranch.coordinator.memory import Memory, Pace
from anabranch.coordinator.parts.parts import AnyPart, Parts
from anabranch.coordinator.parts.standard import STANDARD
from anabranch.coordinator.settings import Settings


def new_memory(
    settings: Settings,
    *,
    code: str | None = None,
    take_over: bool = False,
    directory: str = "",
    parts: Sequence[AnyPart] = STANDARD,
) -> Memory:
    """The memory of a coordinator before its first event."""
    return Memory(
        settings,
        Parts.initial(parts),
        CheckpointJob(),
        LoadJob(),
        ReplayJob(),
        ShutdownJob(),
        ProfileJob(),
        PausedSourcesJob(),
        Pace(BatchSize(settings.target_latency_seconds)),
        code,
        take_over,
        directory,
    )
