"""Responses: values as JSON, errors as problem documents."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from anabranch.errors import AnabranchError, InvalidRequest, UnknownPath
from anabranch.http.problems import CONTENT_TYPE, problem_of
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure


def json_response(value: msgspec.Struct, status: int = 200) -> Response:
    """A value as a JSON response."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem_response(
    failure: Failure, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """A failure as a problem document."""
    problem = problem_of(failure, status)
    return Response(
        msgspec.json.encode(problem), problem.status, headers=headers, media_type=CONTENT_TYPE
    )


def add_handlers(app: FastAPI) -> None:
    """Answer every error of the application with a problem document."""

    @app.exception_handler(AnabranchError)
    async def known(request: Request, error: AnabranchError) -> Response:
        headers = {"Retry-After": "1"} if error.code == "request.too_many" else None
        return problem_response(failure_of(error), headers=headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return problem_response(failure_of(InvalidRequest(_sentence(error), where=_place(request))))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        headers = error.headers
        if error.status_code == 405:
            headers = {"Allow": ", ".join(_methods(app, request.url.path))}
        return problem_response(
            failure_of(_framework_error(request, error)), error.status_code, headers
        )

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        # The log has the details; callers learn only the kind.
        what = f"Internal error of the coordinator: {type(error).__name__}"
        failure = Failure("anabranch", what, _place(request), "See the coordinator's log.")
        return problem_response(failure)


def _methods(app: FastAPI, path: str) -> list[str]:
    """The methods of all routes of a path; the framework names only those of the first."""
    calls: dict[str, object] = app.openapi()["paths"].get(path, {})
    return sorted(method.upper() for method in calls)


def _place(request: Request) -> str:
    return f"{request.method} {request.url.path}"


def _framework_error(request: Request, error: HTTPException) -> AnabranchError:
    if error.status_code == 404:
        return UnknownPath("There is no such call", where=_place(request), do="See /openapi.json.")
    return InvalidRequest(str(error.detail), where=_place(request))


def _sentence(error: RequestValidationError) -> str:
    found = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
    return "; ".join(found)
