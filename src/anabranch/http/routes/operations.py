"""Routes that change what a pipeline does."""

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
from anabranch.http.app_context import AppContext
from anabranch.http.body import read_body
from anabranch.http.callers import Callers
from anabranch.http.openapi import answers, body
from anabranch.http.parameters import strict_router
from anabranch.http.responses import json_response
from anabranch.http.schemas import LONGEST_SECONDS, LoadRequest, OperationAnswer
from anabranch.protocol.failures import error_of

AT_ONCE_SECONDS = 0.5
"""How long to wait for an immediate answer: the coordinator's thread may be busy that long."""

Seconds = Annotated[
    float,
    Query(
        ge=0,
        le=LONGEST_SECONDS,
        allow_inf_nan=False,
        description="How long to wait. If unfinished, it continues: see status.",
    ),
]

SOURCE_PATH = "/input_endpoints/{source:path}"
"""Accepts any text: an unknown source is refused with a list of the sources."""

SourceName = Annotated[str, Path(description="The name of a source.")]

IN_PROGRESS = {202: "Accepted, and still in progress."}
REFUSALS = (409, 507)


def operation_calls(context: AppContext) -> APIRouter:
    """Lifecycle routes: start and pause, also of a source, shutdown, checkpoint and load."""
    calls = strict_router("operations")
    responses = answers(OperationAnswer, *REFUSALS, also=IN_PROGRESS)

    async def ask_at_once(name: str, operation: Operation) -> Response:
        return await operate(context, context.control, name, operation, AT_ONCE_SECONDS)

    @calls.post("/start", responses=responses)
    async def start() -> Response:
        """Resume after a pause. Answers at once."""
        return await ask_at_once("start", StartPipeline())

    @calls.post("/pause", responses=responses)
    async def pause() -> Response:
        """Plan no further step. Answers at once; the current step is finished."""
        return await ask_at_once("pause", PausePipeline())

    @calls.post(f"{SOURCE_PATH}/start", responses=responses)
    async def source_start(source: SourceName) -> Response:
        """Resume a paused source where it stopped. Answers at once."""
        return await ask_at_once("source start", StartSource(source))

    @calls.post(f"{SOURCE_PATH}/pause", responses=responses)
    async def source_pause(source: SourceName) -> Response:
        """Stop reading a source. Answers at once; everything else continues.

        The next step or two still read what it has already offered. The pause holds until the
        source is started or the pipeline restarted. A pipeline does not complete while a source
        that has not ended is paused.
        """
        return await ask_at_once("source pause", PauseSource(source))

    @calls.post("/shutdown", responses=responses)
    async def shutdown(at_once: bool = False, wait: bool = True, seconds: Seconds = 30) -> Response:
        """Finish the current step, publish, keep a checkpoint and end.

        With `at_once` the current step is abandoned and no checkpoint is kept; nothing committed
        is lost. With `wait=false` it answers at once.
        """
        operation = ShutDownPipeline(at_once=at_once)
        if not wait:
            return await operate(context, context.control, "shutdown", operation, 0)
        return await operate(context, context.shutdowns, "shutdown", operation, seconds)

    @calls.post("/checkpoint", responses=responses)
    async def checkpoint(seconds: Seconds = 30) -> Response:
        """Keep the last committed step as a checkpoint. Answers when it is durable."""
        return await operate(context, context.waiting, "checkpoint", TakeCheckpoint(), seconds)

    with_body = answers(OperationAnswer, *REFUSALS, 413, 415, also=IN_PROGRESS)

    @calls.post("/load", responses=with_body, openapi_extra=body(LoadRequest))
    async def load(request: Request, seconds: Seconds = 30) -> Response:
        """Go back to a kept checkpoint, in a new branch; later steps stay in the old branch.

        Refused if a sink has published later steps and cannot retract them, unless duplicates are
        accepted. Answers when the new branch is durable.
        """
        wanted = await read_body(request, LoadRequest)
        operation = LoadCheckpoint(wanted.step, wanted.accept_duplicates)
        return await operate(context, context.waiting, "load", operation, seconds)

    return calls


async def operate(
    context: AppContext,
    callers: Callers,
    name: str,
    operation: Operation,
    seconds: float,
    kind: type[OperationAnswer] = OperationAnswer,
) -> Response:
    """Ask for an operation and answer with its result: 200, or 202 while it is in progress."""
    found = await callers.call(lambda: context.coordinator.ask(operation, seconds))
    if found.failure is not None:
        raise error_of(found.failure)
    answer = kind(name, not found.waiting, found.step, await context.status())
    return json_response(answer, 202 if found.waiting else 200)
