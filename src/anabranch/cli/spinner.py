"""Spinner and progress bar for long calls, which run in a thread.

Both are drawn on stderr and only on a terminal, so that stdout holds nothing but the result.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from anabranch.errors import AnabranchError
from anabranch.http.client import Client
from anabranch.http.schemas import OperationAnswer
from anabranch.http.text_table import visible

LOOK_SECONDS = 0.2

T = TypeVar("T")


class _Work(Generic[T]):
    """A call in its own thread, so that the main thread can draw and be interrupted."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._result.append(self._function())
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()

    def over(self, seconds: float) -> bool:
        return self._over.wait(seconds)

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


def with_spinner(text: str, function: Callable[[], T]) -> T:
    """Call a function and return its result, with a spinner meanwhile."""
    work, console = _Work(function), Console(stderr=True)
    if console.is_terminal:
        with console.status(text):
            while not work.over(LOOK_SECONDS):
                pass
    else:
        while not work.over(LOOK_SECONDS):
            pass
    return work.result()


def checkpoint_with_progress(client: Client, seconds: float, console: Console) -> OperationAnswer:
    """Take a checkpoint; a bar shows how many of its files are done."""
    work = _Work(lambda: client.checkpoint(seconds))
    described = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), described, BarColumn(), MofNCompleteColumn())
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bars:
        task = bars.add_task("Checkpoint", total=None)
        while not work.over(LOOK_SECONDS):
            # A missed update does not matter: the call itself fails if the coordinator is gone.
            with contextlib.suppress(AnabranchError):
                making = client.checkpoints().under_way
                if making is not None:
                    what = "Checkpoint"
                    if making.waiting_for is not None:
                        what += f", waits for {visible(making.waiting_for)}"
                    bars.update(
                        task, total=making.files, completed=making.files_done, description=what
                    )
    return work.result()
