"""The OpenAPI document: FastAPI's paths and parameters, the schemas of our msgspec classes.

FastAPI does not know these classes, so routes name them with ``answers`` and ``body``, and
``openapi_document`` adds their schemas.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from anabranch.http import schemas
from anabranch.http.responses import CONTENT_TYPE
from anabranch.http.schemas import ProblemDocument

PREFIX = "#/components/schemas/"

TEXTS = {
    400: "The call is malformed, or the query is invalid.",
    401: "The token is missing or wrong.",
    403: "Without a token: a call from a page of another origin or by another host's name.",
    404: "There is no such call.",
    405: "The path does not support this method.",
    406: "None of the formats in Accept is available.",
    408: "The request did not arrive in time.",
    409: "Refused, with the reason; nothing was changed.",
    410: "The files of the queried state have been removed.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The query is valid but failed, or exceeded its limits.",
    500: "An internal error of the coordinator.",
    503: "Not now: too many calls, or the pipeline cannot do it.",
    507: "There is no space left.",
}
COMMON_ERRORS = (400, 401, 403, 405, 408, 500, 503)


def ref(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """A reference to the schema of a class."""
    return {"$ref": f"{PREFIX}{kind.__name__}"}


def answers(
    kind: type[msgspec.Struct] | None, *errors: int, also: dict[int, str] | None = None
) -> dict[int | str, dict[str, Any]]:
    """The responses of a route: 200 and ``also`` with a class, and errors.

    With None the route describes its 200 itself.
    """
    problem = {CONTENT_TYPE: {"schema": ref(ProblemDocument)}}
    found: dict[int | str, dict[str, Any]] = {
        code: {"description": TEXTS[code], "content": problem}
        for code in sorted({*COMMON_ERRORS, *errors})
    }
    if kind is not None:
        for code, text in {200: kind.__doc__ or "", **(also or {})}.items():
            found[code] = {
                "description": text.partition("\n")[0],
                "content": {"application/json": {"schema": ref(kind)}},
            }
    return found


def body(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The request body of a route, for ``openapi_extra``."""
    content = {"application/json": {"schema": ref(kind)}}
    return {"requestBody": {"required": True, "content": content}}


def openapi_document(app: FastAPI, secured: bool) -> dict[str, Any]:
    """Build the whole document."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    for operation in (each for methods in document["paths"].values() for each in methods.values()):
        # We answer 400 with a problem document instead.
        if operation["responses"].get("422", {}).get("description") == "Validation Error":
            del operation["responses"]["422"]
    components = document.setdefault("components", {})
    published = [kind for kind in vars(schemas).values() if isinstance(kind, msgspec.StructMeta)]
    components["schemas"] = msgspec.json.schema_components(
        published, ref_template=PREFIX + "{name}"
    )[1]
    if secured:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation["security"] = [] if path == "/health" else [{"token": []}]
    return document
