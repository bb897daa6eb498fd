"""Routes that only read: status, stats, metrics, metadata, checkpoints, health."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from anabranch.errors import CoordinatorStarting
from anabranch.http.app_context import AppContext
from anabranch.http.openapi import answers
from anabranch.http.parameters import strict_router
from anabranch.http.responses import call_name, json_response, problem_response
from anabranch.http.routes.metrics import CONTENT_TYPE
from anabranch.http.schemas import (
    Checkpoints,
    GraphEdge,
    Health,
    Metadata,
    RegionFacts,
    SourceRegion,
    Stats,
)
from anabranch.http.stats import stats_of
from anabranch.protocol.node import Failure, ProgramInfo
from anabranch.protocol.status import Phase, SourceStatus, Status


def reading_calls(context: AppContext) -> APIRouter:
    """All routes that answer at once and change nothing."""
    calls = strict_router("looking")

    @calls.get("/status", responses=answers(Status))
    async def status() -> Response:
        """What the pipeline is doing."""
        return json_response(await context.status())

    @calls.get("/stats", responses=answers(Stats))
    async def stats() -> Response:
        """Statistics of the recent steps."""
        return json_response(
            stats_of(await context.status(), context.feed.recent(), time.monotonic())
        )

    @calls.get("/metadata", responses=answers(Metadata))
    async def metadata() -> Response:
        """The running dataflow: sources, regions with their states, sinks, and the graph."""
        info = await context.quick.call(context.coordinator.info)
        if info is None:
            raise CoordinatorStarting("No node has reported its dataflow yet", do="Ask again soon.")
        return json_response(metadata_of(info, await context.status()))

    @calls.get("/checkpoints", responses=answers(Checkpoints))
    async def checkpoints() -> Response:
        """The kept checkpoints, oldest first."""
        found = await context.status()
        return json_response(Checkpoints(found.checkpoints, found.checkpoint))

    @calls.get("/health", responses=answers(Health))
    async def health(request: Request) -> Response:
        """Whether the process answers and the pipeline has not failed. Needs no token."""
        found = await context.status()
        if found.phase is Phase.FAILED:
            failure = found.failure or Failure("step.failed", "The pipeline has failed")
            return problem_response(failure, call_name(request), 503)
        return json_response(Health(found.phase, found.leader))

    @calls.get(
        "/metrics",
        responses={
            **answers(None),
            200: {
                "description": "Metrics in Prometheus's text format.",
                "content": {CONTENT_TYPE: {"schema": {"type": "string"}}},
            },
        },
    )
    async def metrics() -> Response:
        """Metrics in Prometheus's text format."""
        text = context.meter.collect(await context.status())
        # As a header: FastAPI would add a second charset to a media type.
        return Response(text, headers={"content-type": CONTENT_TYPE})

    return calls


def metadata_of(info: ProgramInfo, status: Status) -> Metadata:
    """The dataflow that a node reported, each region with its workers."""
    spread = {region.region: region for region in status.regions}
    return Metadata(
        dataflow=info.dataflow,
        code=info.code,
        bins=info.bins,
        sources=info.sources,
        regions=tuple(
            RegionFacts(
                region=name,
                states=tuple(shape for shape in info.shapes if shape.region == name),
                workers=len(set(spread[name].bins)) if name in spread else 0,
                generation=spread[name].generation if name in spread else 0,
            )
            for name in info.regions
        ),
        sinks=info.sinks,
        releasing=info.releasing,
        source_regions=tuple(_source_region(info, each) for each in status.sources),
        nodes=info.graph,
        edges=tuple(
            GraphEdge(producer, node.id) for node in info.graph for producer in node.inputs
        ),
        times=info.times,
    )


def _source_region(info: ProgramInfo, source: SourceStatus) -> SourceRegion:
    return SourceRegion(
        source.source,
        "python" if source.source in info.partitions else "jvm",
        source.partitions,
        len(set(source.partitions)),
        source.generation,
    )
