"""A rescale is waited for, while a bar on the terminal shows how far it is."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from anabranch.cli.scale_text import left_text, wish_text
from anabranch.cli.waiting import LOOK_SECONDS
from anabranch.coordinator.status import ENDED, RescaleStatus, Status
from anabranch.http.answers import ScaleAnswer
from anabranch.http.client import Client


@dataclass(frozen=True, slots=True)
class Seen:
    """Which rescale was waited for, and how the pipeline stood in the end."""

    number: int
    status: Status


def until_settled(client: Client, answer: ScaleAnswer, seconds: float, console: Console) -> Seen:
    """Wait until the rescale that was asked for is over, or the pipeline, or so many seconds."""
    status, until = answer.status, time.monotonic() + seconds
    number = number_of(status)
    columns = (
        *(SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)),
        *(MofNCompleteColumn(), TextColumn("bins  {task.fields[more]}", markup=False)),
    )
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bars:
        task = bars.add_task("Rescale", total=None, more="")
        while _goes_on(status, number) and time.monotonic() < until:
            rescale = status.rescale
            assert rescale is not None
            bars.update(
                task,
                description=_doing(rescale),
                total=rescale.moved_bins + rescale.left_bins,
                completed=rescale.moved_bins,
                more=left_text(rescale),
            )
            time.sleep(min(LOOK_SECONDS, max(until - time.monotonic(), 0)))
            status = client.status()
    return Seen(number, status)


def number_of(status: Status) -> int:
    """The newest rescale: it may be over already."""
    if status.rescale is not None:
        return status.rescale.number
    return status.rescales[-1].number if status.rescales else 0


def _goes_on(status: Status, number: int) -> bool:
    rescale = status.rescale
    return rescale is not None and rescale.number == number and status.phase not in ENDED


def _doing(rescale: RescaleStatus) -> str:
    wish = wish_text(rescale.wish)
    return wish if rescale.phase == "moving" else f"{wish}, {rescale.phase.replace('_', ' ')}"
