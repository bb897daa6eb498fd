"""The calls that look into a worker: where its time goes, and what it holds in memory."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from anabranch.coordinator.operations import ProfileWorker
from anabranch.coordinator.port import Answered
from anabranch.http.app_context import AppContext
from anabranch.http.openapi import answers, ref
from anabranch.http.parameters import strict_router
from anabranch.http.profile_text import profile_text
from anabranch.http.responses import json_response, problem_response
from anabranch.http.routes.operations import REFUSALS, Seconds, answered
from anabranch.http.schemas import MOST_WORKERS, ProfileAnswer
from anabranch.records.profiles import ProfileKind, ProfileRequest

Worker = Annotated[int, Query(ge=0, le=MOST_WORKERS, description="Whose tasks are looked at.")]
Region = Annotated[
    str | None,
    Query(min_length=1, max_length=200, description="In this region alone; in all unless told."),
]
Form = Annotated[Literal["json", "text"], Query(description="How the answer is written.")]

_FOUND = {
    "description": ProfileAnswer.__doc__,
    "content": {
        "application/json": {"schema": ref(ProfileAnswer)},
        "text/plain": {"schema": {"type": "string"}},
    },
}


def profile_calls(context: AppContext) -> APIRouter:
    """``dump_profile`` and ``heap_profile``."""
    calls = strict_router("looking")
    waiting = {**_FOUND, "description": "Taken; no step has come that reads something."}
    said = {**answers(None, *REFUSALS), 200: _FOUND, 202: waiting}

    @calls.get("/dump_profile", responses=said, response_class=Response)
    async def dump_profile(
        worker: Worker = 0, region: Region = None, format: Form = "json", seconds: Seconds = 30
    ) -> Response:
        """Where the time of a worker goes, function by function, in the next step.

        That step is slower for it. Answers when it is committed.
        """
        return await _profiled(
            context, ProfileRequest(ProfileKind.TIME, worker, region), format, seconds
        )

    @calls.get("/heap_profile", responses=said, response_class=Response)
    async def heap_profile(
        worker: Worker = 0, region: Region = None, format: Form = "json", seconds: Seconds = 30
    ) -> Response:
        """What a worker holds in memory at the end of the next step, and the lines that took it.

        That step is slower for it. Answers when it is committed.
        """
        return await _profiled(
            context, ProfileRequest(ProfileKind.HEAP, worker, region), format, seconds
        )

    return calls


async def _profiled(
    context: AppContext, request: ProfileRequest, form: Literal["json", "text"], seconds: float
) -> Response:
    found = await answered(context, context.waiting, ProfileWorker(request), seconds)
    if found.failure is not None:
        return problem_response(found.failure)
    return _told(found, form)


def _told(found: Answered, form: Literal["json", "text"]) -> Response:
    status = 202 if found.waiting else 200
    answer = ProfileAnswer(not found.waiting, found.step, found.profiles)
    if form == "text":
        return Response(profile_text(answer), status, media_type="text/plain")
    return json_response(answer, status)
