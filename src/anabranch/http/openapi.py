"""The OpenAPI document: FastAPI's paths and parameters, the schemas of our own classes.

Bodies are msgspec classes, in and out. FastAPI knows nothing of them, so calls name them with
``answers`` and ``body`` and ``complete`` puts their schemas in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from anabranch.http.problems import CONTENT_TYPE
from anabranch.http.schemas import (
    Checkpoints,
    Health,
    LoadRequest,
    Metadata,
    OperationAnswer,
    ProblemDocument,
    ProfileAnswer,
    QueryAnswer,
    QueryRequest,
    RebalanceRequest,
    Rescales,
    ScaleAnswer,
    ScaleRequest,
    Stats,
)
from anabranch.protocol.status import Status

PREFIX = "#/components/schemas/"
PUBLISHED: tuple[type[msgspec.Struct], ...] = (
    *(Checkpoints, Health, LoadRequest, Metadata, OperationAnswer, ProblemDocument, QueryAnswer),
    *(ProfileAnswer, QueryRequest, RebalanceRequest, Rescales, ScaleAnswer, ScaleRequest),
    *(Stats, Status),
)

TEXTS = {
    400: "The call is not what it should be, or the query cannot be run.",
    401: "The token is missing or another one.",
    403: "Without a token: a call from a page of another origin or by another host's name.",
    404: "There is no such call.",
    405: "The path has other methods.",
    406: "None of the formats in Accept is there.",
    408: "The body did not arrive in time.",
    409: "Refused, with the reason; nothing was changed.",
    410: "The files of the state that the query saw have been removed.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The query was understood and could not be computed, or not within its limits.",
    500: "An error of the coordinator's own.",
    503: "Not now: too many calls, or something keeps the pipeline from doing it.",
    507: "There is no space left.",
}
EVERYWHERE = (400, 401, 403, 405, 500, 503)


def ref(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """A reference to the schema of a class."""
    return {"$ref": f"{PREFIX}{kind.__name__}"}


def answers(
    kind: type[msgspec.Struct] | None, *errors: int, also: dict[int, str] | None = None
) -> dict[int | str, dict[str, Any]]:
    """The answers of a call: 200 with a class, others with the same, and errors.

    None: the call describes its 200 itself.
    """
    found: dict[int | str, dict[str, Any]] = {
        code: _problem(code) for code in sorted({*EVERYWHERE, *errors})
    }
    if kind is not None:
        for code, text in {200: kind.__doc__ or "", **(also or {})}.items():
            found[code] = {
                "description": text.partition("\n")[0],
                "content": {"application/json": {"schema": ref(kind)}},
            }
    return found


def body(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The body that a call takes, for ``openapi_extra``."""
    content = {"application/json": {"schema": ref(kind)}}
    return {"requestBody": {"required": True, "content": content}}


def complete(app: FastAPI, secured: bool) -> dict[str, Any]:
    """The whole document."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    for operation in _operations(document):
        # Ours are problem documents, and 400.
        if operation["responses"].get("422", {}).get("description") == "Validation Error":
            del operation["responses"]["422"]
    components = document.setdefault("components", {})
    components["schemas"] = msgspec.json.schema_components(
        PUBLISHED, ref_template=PREFIX + "{name}"
    )[1]
    if secured:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation["security"] = [] if path == "/health" else [{"token": []}]
    return document


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from methods.values()


def _problem(code: int) -> dict[str, Any]:
    return {
        "description": TEXTS[code],
        "content": {CONTENT_TYPE: {"schema": ref(ProblemDocument)}},
    }
