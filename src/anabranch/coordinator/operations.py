"""What users can ask of a running pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from anabranch.protocol.rescale_requests import RescaleRequest
from anabranch.records.profiles import ProfileRequest


@dataclass(frozen=True, slots=True)
class StartPipeline:
    """Go on after a pause. Answered at once."""


@dataclass(frozen=True, slots=True)
class PausePipeline:
    """Plan no further step. Answered at once; the step under way is finished."""


@dataclass(frozen=True, slots=True)
class StartSource:
    """Ask a source again that was paused: it goes on where it stood. Answered at once."""

    source: str


@dataclass(frozen=True, slots=True)
class PauseSource:
    """Ask nothing more of a source. Answered at once; everything else goes on.

    What it has offered already is still read, by the next step or two, and it is told what is
    committed. It holds until the source is started again, or the pipeline is restarted;
    ``StartPipeline`` and a rewind do not end it. A pipeline does not complete while a source is
    paused that has not ended.
    """

    source: str


@dataclass(frozen=True, slots=True)
class ShutDownPipeline:
    """Finish the step under way, publish, keep a checkpoint, and end. Answered when it is over.

    It fails where the checkpoint cannot be kept, and where sinks do not come on for long.

    ``at_once``: give up the step under way and keep no checkpoint; nothing committed is lost.
    """

    at_once: bool = False


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Keep the last committed step. Answered when it is durable."""


@dataclass(frozen=True, slots=True)
class LoadCheckpoint:
    """Go back to a kept checkpoint and leave the steps after it behind, in a branch of their own.

    Refused when a sink that has published later steps cannot take them back, unless duplicates
    are accepted. Answered when the new branch is durable.
    """

    step: int
    accept_duplicates: bool = False


@dataclass(frozen=True, slots=True)
class RescalePipeline:
    """Change who owns which bins while rows flow; or pause, resume, cancel such a change.

    Answered when a commit has taken note of it: from then on it survives a crash. It goes on over
    many steps after that. Refused in a pause, which makes no commit.
    """

    request: RescaleRequest


@dataclass(frozen=True, slots=True)
class ProfileWorker:
    """Look at the tasks of a worker in the next step that reads something.

    Answered with what was found when that step is committed; nothing is kept of it. Refused in a
    pause, which makes no step.
    """

    request: ProfileRequest


REWIND = 0
"""The number of the request to load that came with the start: nothing is started without it."""

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
