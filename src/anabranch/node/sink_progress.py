"""One sink of an outbox: opening it, how far it is, and its back-off while it fails.

A sink is *ready* once it is open and has taken back what a rewind left behind. Until then nothing
is published to it, and opening it is retried like publishing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anabranch.errors import (
    AnabranchError,
    BuildError,
    CorruptStaged,
    DirectoryError,
    PublishFailed,
    SinkUnavailable,
    TargetTaken,
)
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure, SinkRetry
from anabranch.protocol.sinks import Publisher, PublishingMany, Retry, StagedStep, TakingBack

#: how many steps a publisher that takes several is given at most
MOST_AT_ONCE = 64

HOPELESS = (BuildError, DirectoryError, TargetTaken, CorruptStaged)
"""Errors that no retry mends: the sink is given up at once."""


@dataclass(slots=True, eq=False)
class SinkProgress:
    """How far one sink is. ``working`` is held while it is opened or publishes.

    ``done`` is the last step that it has. ``back_to`` is the step of a rewind: the sink takes back
    what it has of later ones before anything is published.
    """

    name: str
    open: Callable[[], Publisher]
    done: int
    retry: Retry = field(default_factory=Retry)
    back_to: int | None = None
    working: threading.Lock = field(default_factory=threading.Lock)
    #: whether it may be given steps
    ready: bool = False
    #: how many steps it takes at once
    most: int = 1
    #: while it fails: since when, how often, how long it was left alone last, and why
    since: float | None = None
    tries: int = 0
    delay: float | None = None
    failure: Failure | None = None
    not_before: float = 0.0
    #: whether it has been given up
    stopped: bool = False
    _publisher: Publisher | None = None

    def open_publisher(self) -> None:
        """Open the sink, unless it is open."""
        if self._publisher is None:
            publisher = self.open()
            # Asked once: whether an object has a protocol's methods takes long to find out.
            self.most = MOST_AT_ONCE if isinstance(publisher, PublishingMany) else 1
            self._publisher = publisher

    def take_back(self) -> None:
        """Let the open sink take back what a rewind left behind, if it can; it is ready then."""
        if self.back_to is not None and isinstance(self._publisher, TakingBack):
            self._publisher.take_back(self.back_to)
        self.ready = True

    def publish(self, steps: Sequence[StagedStep]) -> None:
        """Let the publisher have steps, no more than it takes at once."""
        assert self._publisher is not None, "a sink that is ready is open"
        if isinstance(self._publisher, PublishingMany):
            self._publisher.publish_many(steps)
        else:
            for staged in steps:
                self._publisher.publish(staged)

    def failed(self, error: AnabranchError, now: float) -> None:
        """Leave it alone for a while, or give it up."""
        self.since = now if self.since is None else self.since
        self.tries += 1
        self.failure = failure_of(error)
        self.delay = self.retry.delay(self.delay)
        self.not_before = now + self.delay
        self.stopped = isinstance(error, HOPELESS)
        timeout = self.retry.timeout
        if timeout is not None:
            self.stopped = self.stopped or now >= self.since + timeout
            # The last try comes when the time is over, not before.
            self.not_before = min(self.not_before, self.since + timeout)

    def succeeded(self) -> None:
        """Forget the failures before."""
        self.tries, self.not_before = 0, 0.0
        self.since = self.delay = self.failure = None

    def retries(self, now: float) -> SinkRetry | None:
        """What to say of it while it fails."""
        if self.failure is None or self.since is None:
            return None
        left = None if self.stopped else max(0.0, self.not_before - now)
        return SinkRetry(self.failure, self.tries, now - self.since, left)


def opening_error(name: str, error: Exception) -> AnabranchError:
    """What is said of a sink that cannot be opened: its own error, if that is one of ours."""
    if isinstance(error, AnabranchError):
        return error
    return SinkUnavailable(
        f"Sink {name!r} could not be opened: {type(error).__name__}: {error}",
        do="Its output stays staged. Mend the sink: it is opened again for as long as its Retry "
        "says; after that, run the pipeline again.",
    )


def publishing_error(name: str, step: int, error: Exception) -> AnabranchError:
    """What is said of a sink that does not take a step: its own error, if that is one of ours."""
    if isinstance(error, AnabranchError):
        return error
    return PublishFailed(
        f"Sink {name!r} raised {type(error).__name__}: {error}",
        where=f"step {step}",
        do="The output stays staged. Mend the sink: it is retried for as long as its Retry says; "
        "after that, run the pipeline again.",
    )
