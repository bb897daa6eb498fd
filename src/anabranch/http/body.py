"""Request bodies: read within limits, decoded strictly."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from anabranch.errors import InvalidRequest, RequestTooLarge

MOST_BODY_BYTES = 1 << 20

T = TypeVar("T", bound=msgspec.Struct)


async def read_body(request: Request, kind: type[T]) -> T:
    """Read the body as a value; fail if it is not JSON or does not fit.

    The connection has a deadline for it.
    """
    stated = request.headers.get("content-type", "application/json").partition(";")[0]
    if stated.strip().lower() != "application/json":
        raise HTTPException(415, f"The body must be application/json, not {stated[:100]}")
    try:
        raw = await _bounded_body(request)
    except ClientDisconnect:
        raise InvalidRequest("The caller disconnected before the body had arrived") from None
    try:
        return msgspec.convert(_whole_numbers(msgspec.json.decode(raw)), kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # ValidationError is a DecodeError: its text names the field.
        raise InvalidRequest(
            f"The body does not fit this call: {error}", do="See /openapi.json."
        ) from None


async def _bounded_body(request: Request) -> bytearray:
    """The body. If its stated length is too large, nothing of it is read."""
    too_large = RequestTooLarge(
        f"The body has more than {MOST_BODY_BYTES:,} bytes", do="Send less."
    )
    if int(request.headers.get("content-length", 0)) > MOST_BODY_BYTES:
        raise too_large
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MOST_BODY_BYTES:
            raise too_large
    return raw


def _whole_numbers(value: Any) -> Any:  # noqa: ANN401  (whatever the caller sent)
    """The value with 5.0 as 5: JSON has only one kind of number."""
    if isinstance(value, dict):
        return {name: _whole_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
