"""Responses: values as JSON, errors as problem documents (RFC 9457)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from anabranch.errors import AnabranchError, InvalidRequest, TooManyRequests, UnknownPath
from anabranch.http.schemas import ProblemDocument
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure

CONTENT_TYPE = "application/problem+json"

STATUS = {
    "request.invalid": 400,
    "request.unauthorized": 401,
    "request.forbidden": 403,
    "request.unknown": 404,
    "request.too_slow": 408,
    "request.too_large": 413,
    "request.too_many": 503,
    "query": 400,
    "query.snapshot_expired": 410,
    "query.too_large": 422,
    "query.failed": 422,
    "query.timeout": 422,
    "query.stuck": 503,
    "operation": 409,
    "directory": 409,
    "store.disk_full": 507,
    "anabranch": 500,
}
"""The HTTP status of an error code, or of the part before its dot."""

ELSE = 503
"""The HTTP status of all other codes: the call may succeed later."""

REMEDIES = {
    409: "Look at /status and change what it was refused for, then call again.",
    410: "Run the query again: it reads the last committed step.",
    422: "Change the query, or give it higher limits: rows, bytes or seconds.",
    500: "See the coordinator's log.",
    503: "Look at /status for what the pipeline waits for, then call again.",
}
"""What to do, by HTTP status, if an error does not say it."""


def json_response(value: msgspec.Struct, status: int = 200) -> Response:
    """A value as a JSON response."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem_response(
    failure: Failure,
    place: str,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A failure as a problem document, by default with the status of its code.

    If the failure does not say where it happened or what to do, ``place`` (the call) and the
    remedy of its status stand for it.
    """
    branch, _, rest = failure.code.partition(".")
    status = status or STATUS.get(failure.code) or STATUS.get(branch, ELSE)
    problem = ProblemDocument(
        type=f"urn:anabranch:error:{failure.code}",
        title=f"{branch}: {rest}".removesuffix(": ").replace("_", " ").capitalize(),
        status=status,
        detail=failure.what,
        code=failure.code,
        where=failure.where or place,
        do=failure.do or REMEDIES.get(status, "Correct the call: see /openapi.json."),
    )
    retry = {"Retry-After": "1"} if failure.code == TooManyRequests.code else {}
    raw = msgspec.json.encode(problem)
    return Response(raw, status, headers={**retry, **(headers or {})}, media_type=CONTENT_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Answer every error of the application with a problem document."""

    @app.exception_handler(AnabranchError)
    async def known(request: Request, error: AnabranchError) -> Response:
        return problem_response(failure_of(error), call_name(request))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        found = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
        failure = Failure(InvalidRequest.code, "; ".join(found))
        return problem_response(failure, call_name(request))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        headers = error.headers
        failure = Failure(InvalidRequest.code, str(error.detail))
        if error.status_code == 404:
            failure = Failure(UnknownPath.code, "There is no such call")
        elif error.status_code == 405:
            methods = _methods(app, request.scope["path"])
            what, do = f"This call is not made by {request.method}", f"Use {' or '.join(methods)}."
            failure = Failure(InvalidRequest.code, what, do=do)
            headers = {"Allow": ", ".join(methods)}
        return problem_response(failure, call_name(request), error.status_code, headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        # The log has the details; callers learn only the kind.
        what = f"Internal error of the coordinator: {type(error).__name__}"
        return problem_response(Failure(AnabranchError.code, what), call_name(request))


def _methods(app: FastAPI, path: str) -> list[str]:
    """The methods of all routes of a path; the framework names only those of the first."""
    return sorted(
        method.upper()
        for template, methods in app.openapi()["paths"].items()
        if re.fullmatch(re.sub(r"{\w+}", ".*", template), path, re.DOTALL)
        for method in methods
    )


def call_name(request: Request) -> str:
    """A call as the place of an error."""
    # Not request.url, which is made of the Host header.
    return f"{request.method} {request.scope['path']}"
