"""The calls that change who owns which bins, while rows flow."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from anabranch.coordinator.operations import RescalePipeline
from anabranch.http.app_context import AppContext
from anabranch.http.body import read_body
from anabranch.http.openapi import answers, body
from anabranch.http.parameters import strict_router
from anabranch.http.responses import json_response, problem_response
from anabranch.http.routes.operations import REFUSALS, STILL_GOING_ON, Seconds, answered
from anabranch.http.schemas import RebalanceRequest, Rescales, ScaleAnswer, ScaleRequest
from anabranch.protocol.rescale_requests import (
    CancelRescale,
    PauseRescale,
    Rebalance,
    ResumeRescale,
    Scale,
    TargetRequest,
)
from anabranch.protocol.rescale_requests import RescaleRequest as Asked


def scaling_calls(context: AppContext) -> APIRouter:
    """``scale``, ``rebalance``, and what can be done to a rescale that is under way."""
    calls = strict_router("scaling")
    said = answers(ScaleAnswer, *REFUSALS, also=STILL_GOING_ON)
    said_of_body = answers(ScaleAnswer, *REFUSALS, 408, 413, 415, also=STILL_GOING_ON)

    @calls.get("/scale", responses=answers(Rescales), response_class=Response)
    async def scale_status() -> Response:
        """The rescale that is under way, and the last ones that are over."""
        found = await context.status()
        return json_response(Rescales(found.rescale, found.rescales))

    @calls.post(
        "/scale",
        responses=said_of_body,
        response_class=Response,
        openapi_extra=body(ScaleRequest),
    )
    async def scale(request: Request, seconds: Seconds = 30) -> Response:
        """Go to another number of workers. Answers when the request is durable.

        The bins move over the steps that follow: see `GET /scale`. A second request replaces the
        target from where things are. With `dry_run` nothing is changed: the answer has a forecast.
        """
        wanted = await read_body(request, ScaleRequest)
        target = Scale(wanted.workers, tuple(wanted.regions.items()), wanted.remove, wanted.by)
        return await _wanted(context, "scale", target, wanted.dry_run, seconds)

    @calls.post(
        "/rebalance",
        responses=said_of_body,
        response_class=Response,
        openapi_extra=body(RebalanceRequest),
    )
    async def rebalance(request: Request, seconds: Seconds = 30) -> Response:
        """Share the bins anew among the same workers. Answers when the request is durable."""
        wanted = await read_body(request, RebalanceRequest)
        target = Rebalance(wanted.regions, wanted.by)
        return await _wanted(context, "rebalance", target, wanted.dry_run, seconds)

    @calls.post("/scale/pause", responses=said, response_class=Response)
    async def scale_pause(seconds: Seconds = 30) -> Response:
        """Hand no more bins over; rows go on. Bins that are on their way arrive."""
        return await _ask(context, "scale pause", PauseRescale(), seconds)

    @calls.post("/scale/resume", responses=said, response_class=Response)
    async def scale_resume(seconds: Seconds = 30) -> Response:
        """Go on with a rescale that was paused."""
        return await _ask(context, "scale resume", ResumeRescale(), seconds)

    @calls.post("/scale/cancel", responses=said, response_class=Response)
    async def scale_cancel(roll_back: bool = False, seconds: Seconds = 30) -> Response:
        """Leave the bins where they are; with `roll_back`, bring them back to where they were."""
        return await _ask(context, "scale cancel", CancelRescale(roll_back), seconds)

    return calls


async def _wanted(
    context: AppContext, name: str, request: TargetRequest, dry_run: bool, seconds: float
) -> Response:
    if not dry_run:
        return await _ask(context, name, request, seconds)
    found = await context.quick.call(lambda: context.coordinator.forecast(request))
    status = await context.status()
    return json_response(ScaleAnswer(name, True, None, status, found))


async def _ask(context: AppContext, name: str, asked: Asked, seconds: float) -> Response:
    found = await answered(context, context.waiting, RescalePipeline(asked), seconds)
    if found.failure is not None:
        return problem_response(found.failure)
    answer = ScaleAnswer(name, not found.waiting, found.step, await context.status())
    return json_response(answer, 202 if found.waiting else 200)
