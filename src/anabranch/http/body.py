"""Request bodies: read within limits, decoded strictly."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from anabranch.errors import InvalidRequest, RequestTooSlow

BODY_SECONDS = 15.0

T = TypeVar("T", bound=msgspec.Struct)


async def read_body(request: Request, kind: type[T]) -> T:
    """Read the body as a value; fail if it is not JSON, does not fit, or does not arrive."""
    stated = request.headers.get("content-type", "application/json").partition(";")[0]
    if stated.strip().lower() != "application/json":
        raise HTTPException(415, f"The body must be application/json, not {stated[:100]}")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            raw = await request.body()
    except TimeoutError:
        raise RequestTooSlow(
            f"The body did not arrive within {BODY_SECONDS:g} s", do="Send it at once."
        ) from None
    except ClientDisconnect:
        raise InvalidRequest("The caller disconnected before the body had arrived") from None
    try:
        return msgspec.convert(_whole_numbers(msgspec.json.decode(raw)), kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # ValidationError is a DecodeError: its text names the field.
        raise InvalidRequest(
            f"The body does not fit this call: {error}", do="See /openapi.json."
        ) from None


def _whole_numbers(value: Any) -> Any:  # noqa: ANN401  (whatever the caller sent)
    """The value with 5.0 as 5: JSON has only one kind of number."""
    if isinstance(value, dict):
        return {name: _whole_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
