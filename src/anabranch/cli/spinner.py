"""Long work in the shell: done in a thread, while something moves on the terminal.

What moves goes to stderr and only to a terminal, so that stdout holds the result alone.
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
    """A call in a thread of its own, so that the main thread can draw and be interrupted."""

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


def with_spinner(text: str, function: Callable[[], T], console: Console) -> T:
    """What the function gives; a spinner turns meanwhile."""
    work = _Work(function)
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
            # The bar is not worth an error: the call itself tells if the coordinator is gone.
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
