"""Wait for a rescale, with a progress bar on the terminal."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console

from anabranch.cli.scale_text import left_text, request_text
from anabranch.cli.spinner import LOOK_SECONDS
from anabranch.http.client import Client
from anabranch.http.schemas import ScaleAnswer
from anabranch.protocol.rescale_history import FinishedRescale
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.protocol.status import ENDED, RescaleStatus, Status


@dataclass(frozen=True, slots=True)
class WatchedRescale:
    """A rescale by number, with the pipeline's status when the wait ended."""

    number: int
    status: Status

    @property
    def over(self) -> bool:
        """Whether it is no longer in progress."""
        return self.status.rescale is None or self.status.rescale.number != self.number

    @property
    def finished(self) -> FinishedRescale | None:
        """How it ended; None if the history no longer has it."""
        return next((each for each in self.status.rescales if each.number == self.number), None)


def await_rescale(
    client: Client,
    answer: ScaleAnswer,
    seconds: float,
    console: Console,
    request: TargetRequest | None = None,
) -> WatchedRescale:
    """Wait until a rescale or the pipeline ends, or the time is up.

    The rescale is the newest one with this request, or the newest of all. It may not end as
    requested: see ``WatchedRescale.finished``.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    status, until = answer.status, time.monotonic() + seconds
    number = rescale_number(status, request)
    columns = (
        *(SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)),
        *(MofNCompleteColumn(), TextColumn("bins  {task.fields[more]}", markup=False)),
    )
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bars:
        task = bars.add_task("Rescale", total=None, more="")
        while _in_progress(status, number) and time.monotonic() < until:
            rescale = status.rescale
            assert rescale is not None
            bars.update(
                task,
                description=_progress_text(rescale),
                total=rescale.moved_bins + rescale.left_bins,
                completed=rescale.moved_bins,
                more=left_text(rescale),
            )
            time.sleep(min(LOOK_SECONDS, max(until - time.monotonic(), 0)))
            status = client.status()
    return WatchedRescale(number, status)


def rescale_number(status: Status, request: TargetRequest | None = None) -> int:
    """The number of the newest rescale with this request, or of the newest of all.

    It may be over already. The request finds it even if another one came right behind it.
    """
    newest_first = (
        [] if status.rescale is None else [(status.rescale.number, status.rescale.request)]
    )
    newest_first += [(each.number, each.request) for each in reversed(status.rescales)]
    matching = (number for number, found in newest_first if request is None or found == request)
    return next(matching, newest_first[0][0] if newest_first else 0)


def _in_progress(status: Status, number: int) -> bool:
    rescale = status.rescale
    return rescale is not None and rescale.number == number and status.phase not in ENDED


def _progress_text(rescale: RescaleStatus) -> str:
    request = request_text(rescale.request)
    return request if rescale.phase == "moving" else f"{request}, {rescale.phase.replace('_', ' ')}"
