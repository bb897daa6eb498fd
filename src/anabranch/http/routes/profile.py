"""Routes that profile a worker: where its time goes, and what it holds in memory."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from anabranch.coordinator.operations import ProfileWorker
from anabranch.http.app_context import AppContext
from anabranch.http.openapi import answers, ref
from anabranch.http.parameters import strict_router
from anabranch.http.profile_text import profile_text
from anabranch.http.responses import json_response
from anabranch.http.routes.operations import REFUSALS, Seconds
from anabranch.http.schemas import MOST_WORKERS, ProfileAnswer
from anabranch.protocol.failures import error_of
from anabranch.records.profiles import ProfileKind, ProfileRequest

Worker = Annotated[int, Query(ge=0, le=MOST_WORKERS, description="The worker to profile.")]
Region = Annotated[
    str | None, Query(min_length=1, max_length=200, description="Profile only this region.")
]
Form = Annotated[Literal["json", "text"], Query(description="The format of the answer.")]

_FOUND = {
    "description": ProfileAnswer.__doc__,
    "content": {
        "application/json": {"schema": ref(ProfileAnswer)},
        "text/plain": {"schema": {"type": "string"}},
    },
}
_WAITING = {**_FOUND, "description": "Accepted; no step has read any rows yet."}
_CALLS = (
    ("dump_profile", ProfileKind.TIME, "Where a worker spends its time, function by function"),
    ("heap_profile", ProfileKind.HEAP, "What a worker holds in memory, by the line that took it"),
)


def profile_calls(context: AppContext) -> APIRouter:
    """The routes ``/dump_profile`` and ``/heap_profile``."""
    calls = strict_router("looking")
    for name, kind, what in _CALLS:
        _add_call(calls, context, name, kind, what)
    return calls


def _add_call(
    calls: APIRouter, context: AppContext, name: str, kind: ProfileKind, what: str
) -> None:
    @calls.post(
        f"/{name}",
        name=name,
        description=f"{what}, in the next step. That step is slower. Answers when it is committed.",
        responses={**answers(None, *REFUSALS), 200: _FOUND, 202: _WAITING},
    )
    async def profile(
        worker: Worker = 0, region: Region = None, format: Form = "json", seconds: Seconds = 30
    ) -> Response:
        operation = ProfileWorker(ProfileRequest(kind, worker, region))
        found = await context.waiting.call(lambda: context.coordinator.ask(operation, seconds))
        if found.failure is not None:
            raise error_of(found.failure)
        status = 202 if found.waiting else 200
        answer = ProfileAnswer(not found.waiting, found.step, found.profiles)
        if format == "text":
            return Response(profile_text(answer), status, media_type="text/plain")
        return json_response(answer, status)
