"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

from anabranch.http.schemas import ProblemDocument
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
    "operation": 409,
    "directory": 409,
    "store.disk_full": 507,
    "anabranch": 500,
}
"""The HTTP status of an error code, or of the part before its dot."""

ELSE = 503
"""The HTTP status of all other codes: the call may succeed later."""


def http_status(code: str) -> int:
    """The HTTP status of an error code.

    >>> http_status("query.timeout"), http_status("query.invalid"), http_status("step.failed")
    (422, 400, 503)
    """
    return STATUS.get(code, STATUS.get(code.partition(".")[0], ELSE))


def title_of(code: str) -> str:
    """An error code as words.

    >>> title_of("query.too_large")
    'Query: too large'
    """
    branch, _, rest = code.replace("_", " ").partition(".")
    return f"{branch.capitalize()}: {rest}" if rest else branch.capitalize()


def problem_of(failure: Failure, status: int | None = None) -> ProblemDocument:
    """A failure as a problem document."""
    return ProblemDocument(
        type=f"urn:anabranch:error:{failure.code}",
        title=title_of(failure.code),
        status=http_status(failure.code) if status is None else status,
        detail=failure.what,
        code=failure.code,
        where=failure.where,
        do=failure.do,
    )
