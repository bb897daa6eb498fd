"""The calls that change what a pipeline does."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from anabranch.coordinator.operations import (
    LoadCheckpoint,
    Operation,
    PausePipeline,
    PauseSource,
    ShutDownPipeline,
    StartPipeline,
    StartSource,
    TakeCheckpoint,
)
from anabranch.coordinator.port import Answered
from anabranch.http.app_context import AppContext
from anabranch.http.body import read_body
from anabranch.http.callers import Callers
from anabranch.http.openapi import answers, body
from anabranch.http.parameters import strict_router
from anabranch.http.responses import json_response, problem_response
from anabranch.http.schemas import LONGEST_SECONDS, LoadRequest, OperationAnswer

AT_ONCE_SECONDS = 0.5
"""How long calls wait that the coordinator answers at once: its thread may be busy so long."""

Seconds = Annotated[
    float,
    Query(
        ge=0,
        le=LONGEST_SECONDS,
        allow_inf_nan=False,
        description="How long to wait for the end of it. It goes on after that: see status.",
    ),
]

SourceName = Annotated[str, Path(description="The name of a source of the dataflow.")]

STILL_GOING_ON = {202: "Taken, and not over yet."}
REFUSALS = (409, 507)


def operation_calls(context: AppContext) -> APIRouter:
    """``start`` and ``pause``, also of a source, ``shutdown``, ``checkpoint`` and ``load``."""
    calls = strict_router("operations")
    said = answers(OperationAnswer, *REFUSALS, also=STILL_GOING_ON)

    @calls.post("/start", responses=said, response_class=Response)
    async def start() -> Response:
        """Go on after a pause. Answers at once."""
        return await _ask(context, context.quick, "start", StartPipeline(), AT_ONCE_SECONDS)

    @calls.post("/pause", responses=said, response_class=Response)
    async def pause() -> Response:
        """Plan no further step. Answers at once; the step under way is finished."""
        return await _ask(context, context.quick, "pause", PausePipeline(), AT_ONCE_SECONDS)

    # Any text may stand for a source: one that is no name of any is refused with those there are.
    @calls.post("/input_endpoints/{source:path}/start", responses=said, response_class=Response)
    async def source_start(source: SourceName) -> Response:
        """Ask a source again that was paused. Answers at once; it goes on where it stood."""
        asked = StartSource(source)
        return await _ask(context, context.quick, "source start", asked, AT_ONCE_SECONDS)

    @calls.post("/input_endpoints/{source:path}/pause", responses=said, response_class=Response)
    async def source_pause(source: SourceName) -> Response:
        """Ask nothing more of a source. Answers at once; all else goes on.

        What it has offered already is still read, by the next step or two. It holds until the
        source is started again, or the pipeline anew. A pipeline does not complete while a source
        is paused that has not ended.
        """
        asked = PauseSource(source)
        return await _ask(context, context.quick, "source pause", asked, AT_ONCE_SECONDS)

    @calls.post("/shutdown", responses=said, response_class=Response)
    async def shutdown(at_once: bool = False, wait: bool = True, seconds: Seconds = 30) -> Response:
        """Finish the step under way, publish, keep a checkpoint, and end.

        With `at_once` the step under way is given up and no checkpoint is kept; nothing committed
        is lost. With `wait=false` it answers at once.
        """
        asked = ShutDownPipeline(at_once=at_once)
        if not wait:
            return await _ask(context, context.quick, "shutdown", asked, 0)
        return await _ask(context, context.waiting, "shutdown", asked, seconds)

    @calls.post("/checkpoint", responses=said, response_class=Response)
    async def checkpoint(seconds: Seconds = 30) -> Response:
        """Keep the last committed step. Answers when it is durable."""
        return await _ask(context, context.waiting, "checkpoint", TakeCheckpoint(), seconds)

    @calls.post(
        "/load",
        responses=answers(OperationAnswer, *REFUSALS, 408, 413, 415, also=STILL_GOING_ON),
        response_class=Response,
        openapi_extra=body(LoadRequest),
    )
    async def load(request: Request, seconds: Seconds = 30) -> Response:
        """Go back to a kept checkpoint; the steps after it stay behind in their own branch.

        Refused when a sink that has published later steps cannot take them back, unless
        duplicates are accepted. Answers when the new branch is durable.
        """
        wanted = await read_body(request, LoadRequest)
        asked = LoadCheckpoint(wanted.step, wanted.accept_duplicates)
        return await _ask(context, context.waiting, "load", asked, seconds)

    return calls


async def answered(
    context: AppContext, callers: Callers, operation: Operation, seconds: float
) -> Answered:
    """Ask the coordinator, without holding up the event loop."""
    return await callers.call(lambda: context.coordinator.ask(operation, seconds))


async def _ask(
    context: AppContext, callers: Callers, name: str, operation: Operation, seconds: float
) -> Response:
    found = await answered(context, callers, operation, seconds)
    if found.failure is not None:
        return problem_response(found.failure)
    answer = OperationAnswer(name, not found.waiting, found.step, await context.status())
    return json_response(answer, 202 if found.waiting else 200)
