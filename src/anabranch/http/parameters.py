"""Strict query parameters: a misspelt one must not be ignored."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute

from anabranch.errors import InvalidRequest


async def _reject_unknown(request: Request) -> None:
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {parameter.alias for parameter in route.dependant.query_params}
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            takes = ", ".join(sorted(known)) or "none"
            raise InvalidRequest(
                f"There is no parameter {name[:100]!r}", do=f"Parameters of this call: {takes}."
            )
        if name in seen:
            raise InvalidRequest(f"The parameter {name!r} is given twice", do="Give it once.")
        seen.add(name)


def strict_router(tag: str) -> APIRouter:
    """A router whose routes accept only the parameters that they declare, each once.

    They answer with a ``Response`` of their own.
    """
    dependencies = [Depends(_reject_unknown)]
    return APIRouter(tags=[tag], dependencies=dependencies, default_response_class=Response)
