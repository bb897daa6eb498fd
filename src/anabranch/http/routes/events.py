"""Committed steps as server-sent events.

Each event has the step as its ``id``: a browser that reconnects names the last one it has, and
gets the remembered steps after it. A comment keeps quiet connections alive.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from anabranch.coordinator.effects import StepDone
from anabranch.http.app_context import AppContext
from anabranch.http.feed import StepFeed, Watcher
from anabranch.http.openapi import answers
from anabranch.http.parameters import strict_router
from anabranch.http.schemas import LAST_STEP

KEEP_ALIVE_SECONDS = 5.0
LONGEST_SECONDS = 86_400.0

EVENT = {
    "description": "One event. The data of `step` is a StepDone, that of `missed` a number.",
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The step."},
        "event": {"enum": ["step", "missed", "end"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}

After = Annotated[
    int | None,
    Query(ge=0, le=LAST_STEP, description="Begin with the remembered steps after this one."),
]
LastId = Annotated[str | None, Header(alias="Last-Event-ID", include_in_schema=False)]
Most = Annotated[int | None, Query(ge=1, le=1_000_000, description="End after this many steps.")]
Longest = Annotated[
    float, Query(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False, description="End after this time.")
]


def event_calls(context: AppContext) -> APIRouter:
    """The route ``/events``."""
    calls = strict_router("looking")

    @calls.get(
        "/events",
        responses={
            **answers(None),
            200: {
                "description": "An event `step` for each committed step, `missed` if the "
                "caller was too slow for some, `end` when the pipeline ends.",
                "content": {"text/event-stream": {"schema": EVENT}},
            },
        },
    )
    async def events(
        after: After = None, most: Most = None, seconds: Longest = 3600, last: LastId = None
    ) -> Response:
        """One event for each committed step, as it comes."""
        begin = int(last) if last and last.isascii() and last.isdigit() else after
        return EventStream(context.feed, begin, most, seconds)

    return calls


class EventStream(Response):
    """The events of a watcher, who has a place from the first byte to the last.

    However the call ends, the place is given back, even if no byte was ever sent.
    """

    media_type = "text/event-stream"

    def __init__(self, feed: StepFeed, after: int | None, most: int | None, seconds: float) -> None:
        super().__init__()
        self._feed = feed
        self._after = after
        self._most = most
        self._until = time.monotonic() + seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a place and send events; ``TooManyRequests`` if there is none."""
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        with self._feed.watching(self._after) as watcher:
            events = _events(watcher, self._most, self._until)
            stream = StreamingResponse(events, headers=headers, media_type=self.media_type)
            await stream(scope, receive, send)


async def _events(watcher: Watcher, most: int | None, until: float) -> AsyncIterator[bytes]:
    sent = missed = 0
    yield b": committed steps\n\n"
    while most is None or sent < most:
        left = until - time.monotonic()
        if left <= 0:
            return
        step = await watcher.next(min(left, KEEP_ALIVE_SECONDS))
        if watcher.missed > missed:
            yield _event("missed", str(watcher.missed - missed).encode())
            missed = watcher.missed
        if step is not None:
            sent += 1
            yield _step(step)
        elif watcher.ended:
            yield _event("end", b"{}")
            return
        else:
            yield b": still here\n\n"


def _step(done: StepDone) -> bytes:
    return f"id: {done.step}\n".encode() + _event("step", msgspec.json.encode(done))


def _event(kind: str, data: bytes) -> bytes:
    return f"event: {kind}\ndata: ".encode() + data + b"\n\n"
