"""The calls that only look: status, stats, metrics, metadata, checkpoints, health."""

from __future__ import annotations

import time

from fastapi import APIRouter
from fastapi.responses import Response

from anabranch.errors import CoordinatorStarting
from anabranch.http.app_context import AppContext
from anabranch.http.openapi import answers
from anabranch.http.parameters import strict_router
from anabranch.http.responses import json_response, problem_response
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


def reading_calls(board: AppContext) -> APIRouter:
    """All calls that answer at once and change nothing."""
    calls = strict_router("looking")

    @calls.get("/status", responses=answers(Status), response_class=Response)
    async def status() -> Response:
        """What the pipeline is doing."""
        return json_response(await board.status())

    @calls.get("/stats", responses=answers(Stats), response_class=Response)
    async def stats() -> Response:
        """The recent steps in numbers."""
        return json_response(stats_of(await board.status(), board.feed.recent(), time.monotonic()))

    @calls.get("/metadata", responses=answers(Metadata), response_class=Response)
    async def metadata() -> Response:
        """The dataflow that runs: sources, regions with their states, sinks, and the graph."""
        facts = await board.quick.call(board.coordinator.facts)
        if facts is None:
            raise CoordinatorStarting("No node has told yet what it runs", do="Ask again soon.")
        return json_response(metadata_of(facts, await board.status()))

    @calls.get("/checkpoints", responses=answers(Checkpoints), response_class=Response)
    async def checkpoints() -> Response:
        """The kept checkpoints, oldest first."""
        found = await board.status()
        return json_response(Checkpoints(found.checkpoints, found.checkpoint))

    @calls.get("/health", responses=answers(Health), response_class=Response)
    async def health() -> Response:
        """Whether the process answers and the pipeline has not failed. Needs no token."""
        found = await board.status()
        if found.phase is Phase.FAILED:
            return problem_response(found.failure or Failure("step.failed", "It failed"), 503)
        return json_response(Health(found.phase, found.leader))

    @calls.get(
        "/metrics",
        responses={
            **answers(None),
            200: {
                "description": "Metrics as Prometheus reads them.",
                "content": {CONTENT_TYPE: {"schema": {"type": "string"}}},
            },
        },
        response_class=Response,
    )
    async def metrics() -> Response:
        """Metrics as Prometheus reads them."""
        text = board.meter.collect(await board.status())
        # The type is given as a header: as a media type FastAPI would add a second charset.
        return Response(text, headers={"content-type": CONTENT_TYPE})

    return calls


def metadata_of(facts: ProgramInfo, status: Status) -> Metadata:
    """The dataflow as its node knows it, each region with its workers."""
    spread = {region.region: region for region in status.regions}
    return Metadata(
        dataflow=facts.dataflow,
        code=facts.code,
        bins=facts.bins,
        sources=facts.sources,
        regions=tuple(
            RegionFacts(
                region=name,
                states=tuple(shape for shape in facts.shapes if shape.region == name),
                workers=len(set(spread[name].bins)) if name in spread else 0,
                generation=spread[name].generation if name in spread else 0,
            )
            for name in facts.regions
        ),
        sinks=facts.sinks,
        endings=facts.endings,
        releasing=facts.releasing,
        source_regions=tuple(_source_region(facts, each) for each in status.sources),
        nodes=facts.graph,
        edges=tuple(
            GraphEdge(producer, node.id) for node in facts.graph for producer in node.inputs
        ),
    )


def _source_region(facts: ProgramInfo, source: SourceStatus) -> SourceRegion:
    return SourceRegion(
        source.source,
        "python" if source.source in facts.partitions else "jvm",
        source.partitions,
        len(set(source.partitions)),
        source.generation,
    )
