"""Threads of queries: those that never return are replaced, up to a number of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from anabranch.errors import QueriesStuck, QueryTimeout
from anabranch.spark.queries.workers import MOST_ABANDONED, QueryWorkers, Work

SOON = 0.02
PATIENCE = 60.0


class Call:
    """A call that returns when it is let go, whatever it is told."""

    def __init__(self, answer: str = "late", cores: int = 0) -> None:
        self.answer = answer
        self.held = cores
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.cancelled = threading.Event()
        self.returned = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        self.returned.set()
        return self.answer

    def work(self) -> Work[str]:
        return Work(self, self.cancelled.set, lambda: self.held)


def simple(call: Callable[[], str]) -> Work[str]:
    return Work(call, lambda: None, lambda: 0)


@pytest.fixture
def workers() -> QueryWorkers[str]:
    return QueryWorkers(1, 1, grace=SOON)


def stuck(workers: QueryWorkers[str], cores: int = 0) -> Call:
    """A call that has been abandoned by now."""
    call = Call(cores=cores)
    with pytest.raises(QueryTimeout, match="took longer than"):
        workers.run(call.work(), SOON)
    assert call.cancelled.is_set()
    return call


def test_a_call_returns_or_raises(workers: QueryWorkers[str]) -> None:
    assert workers.run(simple(lambda: "one"), PATIENCE) == "one"
    with pytest.raises(ZeroDivisionError):
        workers.run(simple(lambda: str(1 // 0)), PATIENCE)
    assert workers.run(simple(lambda: threading.current_thread().name), PATIENCE) == (
        "anabranch-query"
    )


def test_the_place_of_a_call_that_never_returns_is_given_back(workers: QueryWorkers[str]) -> None:
    call = stuck(workers)
    assert workers.run(simple(lambda: "next"), PATIENCE) == "next"
    assert workers.abandoned == 1
    call.let_go.set()
    assert workers.run(simple(lambda: "again"), PATIENCE) == "again"


def test_a_call_that_returns_in_its_grace_keeps_its_thread() -> None:
    workers: QueryWorkers[str] = QueryWorkers(1, 1, grace=PATIENCE)
    call = stuck(workers)
    call.let_go.set()
    assert workers.run(simple(lambda: "next"), PATIENCE) == "next"
    assert workers.abandoned == 0


def test_with_too_many_lost_threads_calls_are_refused_until_some_return(
    workers: QueryWorkers[str],
) -> None:
    calls: list[Call] = []
    while len(calls) < MOST_ABANDONED:
        calls.append(stuck(workers))
        until(lambda: workers.abandoned == len(calls))
    with pytest.raises(QueriesStuck, match=f"{MOST_ABANDONED} queries have returned neither"):
        workers.run(simple(lambda: "refused"), PATIENCE)
    calls[0].let_go.set()
    until(lambda: workers.abandoned == MOST_ABANDONED - 1)
    assert workers.run(simple(lambda: "taken"), PATIENCE) == "taken"


def test_what_still_holds_too_many_cores_keeps_its_place(workers: QueryWorkers[str]) -> None:
    first = stuck(workers, cores=1)
    until(lambda: workers.abandoned == 1)
    second = stuck(workers, cores=1)
    with pytest.raises(QueryTimeout, match="for its turn"):
        workers.run(simple(lambda: "waits"), 10 * SOON)
    first.held = 0
    assert workers.run(simple(lambda: "next"), PATIENCE) == "next"
    second.let_go.set()


def test_calls_take_turns(workers: QueryWorkers[str]) -> None:
    call, answers = Call("first"), SimpleQueue[str]()
    waiting = threading.Thread(target=lambda: answers.put(workers.run(call.work(), PATIENCE)))
    waiting.start()
    assert call.begun.wait(PATIENCE)
    with pytest.raises(QueryTimeout, match="for its turn"):
        workers.run(simple(lambda: "second"), SOON)
    call.let_go.set()
    waiting.join(PATIENCE)
    assert answers.get_nowait() == "first"
    assert workers.run(simple(lambda: "second"), PATIENCE) == "second"


def until(so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / SOON)):
        if so():
            return
        pause.wait(SOON)
    raise AssertionError("it never happened")
