"""Spinner and progress bar for long calls, which run in a thread.

Both are drawn on stderr and only on a terminal, so that stdout holds nothing but the result.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import TypeVar

from rich.console import Console

from anabranch.errors import AnabranchError
from anabranch.http.client import Client
from anabranch.http.schemas import OperationAnswer
from anabranch.http.text_table import visible

LOOK_SECONDS = 0.2

T = TypeVar("T")


def _in_thread(function: Callable[[], T]) -> Future[T]:
    """Call a function in a daemon thread, so that the main thread can draw and be interrupted."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _poll(future: Future[T]) -> Iterator[None]:
    """Yield every ``LOOK_SECONDS`` until a call has returned."""
    while not wait([future], LOOK_SECONDS).done:
        yield


def with_spinner(text: str, function: Callable[[], T]) -> T:
    """Call a function and return its result, with a spinner meanwhile."""
    work, console = _in_thread(function), Console(stderr=True)
    with console.status(text) if console.is_terminal else contextlib.nullcontext():
        for _ in _poll(work):
            pass
    return work.result()


def checkpoint_with_progress(client: Client, seconds: float, console: Console) -> OperationAnswer:
    """Take a checkpoint; a bar shows how many of its files are done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    work = _in_thread(lambda: client.checkpoint(seconds))
    described = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), described, BarColumn(), MofNCompleteColumn())
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bars:
        task = bars.add_task("Checkpoint", total=None)
        for _ in _poll(work):
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
