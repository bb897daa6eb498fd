"""Routes that move bins between workers while rows flow."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from anabranch.coordinator.operations import RescalePipeline
from anabranch.http.app_context import AppContext
from anabranch.http.body import read_body
from anabranch.http.openapi import answers, body
from anabranch.http.parameters import strict_router
from anabranch.http.responses import json_response
from anabranch.http.routes.operations import IN_PROGRESS, REFUSALS, Seconds, operate
from anabranch.http.schemas import RebalanceRequest, Rescales, ScaleAnswer, ScaleRequest
from anabranch.protocol.rescale_requests import (
    CancelRescale,
    PauseRescale,
    Rebalance,
    RescaleRequest,
    ResumeRescale,
    Scale,
    TargetRequest,
)


def scaling_calls(context: AppContext) -> APIRouter:
    """The routes ``/scale`` and ``/rebalance``, and those of the current rescale."""
    calls = strict_router("scaling")
    responses = answers(ScaleAnswer, *REFUSALS, also=IN_PROGRESS)
    body_responses = answers(ScaleAnswer, *REFUSALS, 413, 415, also=IN_PROGRESS)

    @calls.get("/scale", responses=answers(Rescales))
    async def scale_status() -> Response:
        """The current rescale and recent finished ones."""
        found = await context.status()
        return json_response(Rescales(found.rescale, found.rescales))

    @calls.post("/scale", responses=body_responses, openapi_extra=body(ScaleRequest))
    async def scale(request: Request, seconds: Seconds = 30) -> Response:
        """Change the number of workers. Answers when the request is durable.

        The bins move during the following steps: see `GET /scale`. A second request replaces the
        target. With `dry_run` it changes nothing and answers with a forecast.
        """
        wanted = await read_body(request, ScaleRequest)
        target = Scale(wanted.workers, tuple(wanted.regions.items()), wanted.remove, wanted.by)
        return await _rescale(context, "scale", target, wanted.dry_run, seconds)

    @calls.post("/rebalance", responses=body_responses, openapi_extra=body(RebalanceRequest))
    async def rebalance(request: Request, seconds: Seconds = 30) -> Response:
        """Redistribute the bins over the same workers. Answers when the request is durable."""
        wanted = await read_body(request, RebalanceRequest)
        target = Rebalance(wanted.regions, wanted.by)
        return await _rescale(context, "rebalance", target, wanted.dry_run, seconds)

    @calls.post("/scale/pause", responses=responses)
    async def scale_pause(seconds: Seconds = 30) -> Response:
        """Start no more moves; rows keep flowing. Bins already moving arrive."""
        return await _ask(context, "scale pause", PauseRescale(), seconds)

    @calls.post("/scale/resume", responses=responses)
    async def scale_resume(seconds: Seconds = 30) -> Response:
        """Resume a paused rescale."""
        return await _ask(context, "scale resume", ResumeRescale(), seconds)

    @calls.post("/scale/cancel", responses=responses)
    async def scale_cancel(roll_back: bool = False, seconds: Seconds = 30) -> Response:
        """Leave the bins where they are; with `roll_back`, move them back to where they were."""
        return await _ask(context, "scale cancel", CancelRescale(roll_back), seconds)

    return calls


async def _rescale(
    context: AppContext, name: str, request: TargetRequest, dry_run: bool, seconds: float
) -> Response:
    if not dry_run:
        return await _ask(context, name, request, seconds)
    found = await context.quick.call(lambda: context.coordinator.forecast(request))
    status = await context.status()
    return json_response(ScaleAnswer(name, True, None, status, found))


async def _ask(context: AppContext, name: str, request: RescaleRequest, seconds: float) -> Response:
    operation = RescalePipeline(request)
    return await operate(context, context.waiting, name, operation, seconds, ScaleAnswer)
