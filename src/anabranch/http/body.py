"""Bodies of calls: read within bounds, decoded strictly."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from anabranch.errors import InvalidRequest, RequestTooSlow

BODY_SECONDS = 15.0

T = TypeVar("T", bound=msgspec.Struct)


async def read_body(request: Request, kind: type[T]) -> T:
    """The body as a value; an error where it is not JSON, not that value, or does not come."""
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
        raise InvalidRequest("The caller went away before the body had arrived") from None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # ValidationError is a DecodeError: its text names the field.
        raise InvalidRequest(
            f"The body is not what this call takes: {error}", do="See /openapi.json."
        ) from None
