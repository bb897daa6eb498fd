"""The HTTP application of a coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from anabranch.coordinator.port import Coordinator
from anabranch.http.app_context import AppContext
from anabranch.http.feed import StepFeed
from anabranch.http.guard import Guard
from anabranch.http.openapi import openapi_document
from anabranch.http.responses import add_handlers
from anabranch.http.routes.events import event_calls
from anabranch.http.routes.metrics import Meter
from anabranch.http.routes.operations import operation_calls
from anabranch.http.routes.profile import profile_calls
from anabranch.http.routes.query import query_calls
from anabranch.http.routes.scale import scaling_calls
from anabranch.http.routes.status import reading_calls
from anabranch.task.queries import LIMIT_SECONDS


class Application(FastAPI):
    """All routes of one coordinator. ``feed`` listens to it while the application is served."""

    def __init__(
        self, coordinator: Coordinator, token: str | None, query_seconds: float = LIMIT_SECONDS
    ) -> None:
        """With a token, calls need it. ``query_seconds`` limits a query that names no limit."""
        meter = Meter()
        self.feed = StepFeed(coordinator, meter.observe)
        self._secured = token is not None
        super().__init__(
            title="Anabranch",
            version=version("anabranch"),
            description="A running pipeline: its lifecycle, its state, its numbers.",
            lifespan=_lifespan,
            # These pages would load scripts from other hosts.
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        self.context = AppContext(coordinator, meter, self.feed, query_seconds)
        changing, looking = (operation_calls, scaling_calls), (reading_calls, profile_calls)
        for calls in (*changing, *looking, query_calls, event_calls):
            self.include_router(calls(self.context))
        add_handlers(self)
        self.add_middleware(Guard, token=token)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, built once."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi_document(self, self._secured)
        return self.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    assert isinstance(app, Application)
    app.feed.start()
    yield
    app.feed.close()
