"""The operations that users can request of a running pipeline."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from anabranch.protocol.rescale_requests import RescaleRequest
from anabranch.records.profiles import ProfileRequest


class StartPipeline(msgspec.Struct, frozen=True):
    """Resume after a pause. Answered at once."""


class PausePipeline(msgspec.Struct, frozen=True):
    """Plan no more steps. Answered at once; the running step is finished."""


class StartSource(msgspec.Struct, frozen=True):
    """Resume a paused source where it stopped. Answered at once."""

    source: str


class PauseSource(msgspec.Struct, frozen=True):
    """Read no more from a source. Answered at once; everything else continues.

    The next step or two still read what it has already offered, and it still learns of commits.
    The pause lasts until the source is started or the pipeline is restarted; ``StartPipeline`` and
    a rewind do not end it. The pipeline does not complete while an unfinished source is paused.
    """

    source: str


class ShutDownPipeline(msgspec.Struct, frozen=True):
    """Finish the running step, publish, take a checkpoint, and end. Answered at the end.

    Fails if the checkpoint fails, or if no sink makes progress for long. ``at_once`` gives up the
    running step and takes no checkpoint; nothing committed is lost. ``drain`` ends the input before
    that: what is offered is read, everything pending falls due, and the pipeline is over for good.
    """

    at_once: bool = False
    drain: bool = False


class TakeCheckpoint(msgspec.Struct, frozen=True):
    """Take a checkpoint of the last committed step. Answered when it is durable."""


class LoadCheckpoint(msgspec.Struct, frozen=True):
    """Rewind to a kept checkpoint; later steps stay behind in their own branch.

    Refused if a sink has published later steps and cannot take them back, unless duplicates are
    accepted. Answered when the new branch is durable.
    """

    step: int
    accept_duplicates: bool = False


class RescalePipeline(msgspec.Struct, frozen=True):
    """Change which workers own which bins while rows flow; or pause, resume or cancel a change.

    Answered when a commit includes the request, so that it survives a crash. The change then takes
    many steps. Refused during a pause, which has no commits.
    """

    request: RescaleRequest


class ProfileWorker(msgspec.Struct, frozen=True):
    """Profile the tasks of a worker in the next step that reads input.

    Answered with the profiles when that step is committed; they are not stored. Refused during a
    pause, which has no steps.
    """

    request: ProfileRequest


REWIND = 0
"""The number of the rewind requested at the start. No step runs before it."""

Operation: TypeAlias = (
    StartPipeline
    | PausePipeline
    | StartSource
    | PauseSource
    | ShutDownPipeline
    | TakeCheckpoint
    | LoadCheckpoint
    | RescalePipeline
    | ProfileWorker
)
