"""Middleware that decides who may call."""

from __future__ import annotations

import hmac
import ipaddress
import re

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.errors import AnabranchError, Forbidden, InvalidRequest, TokenMissing, Unauthorized
from anabranch.http.responses import call_name, problem_response
from anabranch.http.token import check_token
from anabranch.protocol.failures import failure_of

OPEN_PATHS = frozenset({"/health"})
"""Paths that need no token: they reveal only that the process is alive."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::[0-9]*)?", re.ASCII)
"""A host and a port by the grammar. A URL parser would take ``evil@127.0.0.1`` for loopback."""


class Guard:
    """Admits calls with the token or, if there is no token, calls from this host.

    Without a token any process of this host may call, but no web page in the user's browser:
    neither from another origin nor by a name that resolves to this host (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        """Wrap an application."""
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on, or reject it."""
        if scope["type"] == "http":
            request = Request(scope)
            error = self._rejection(scope["path"], request.headers)
            if error is not None:
                headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
                answer = problem_response(failure_of(error), call_name(request), headers=headers)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _rejection(self, path: str, headers: Headers) -> AnabranchError | None:
        host = headers.get("host", "")
        parts = _HOST.fullmatch(host)
        if parts is None:
            return InvalidRequest(
                "The Host header is malformed",
                where=f"Host: {host[:100]}",
                do="Send a name or an address, and a port after a colon if there is one.",
            )
        if self._token is None:
            return _reject_foreign(host, parts["name"].strip("[]"), headers.get("origin"))
        if path in OPEN_PATHS or self._has_token(headers, self._token):
            return None
        return Unauthorized(
            "The call needs the pipeline's token",
            do="Send the header Authorization: Bearer TOKEN; the token is in coordinator.json "
            "in the pipeline's directory.",
        )

    @staticmethod
    def _has_token(headers: Headers, token: bytes) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        # Headers are Latin-1 on the wire; the comparison takes constant time.
        same = hmac.compare_digest(given.strip().encode("latin-1"), token)
        return kind.lower() == "bearer" and same


def _reject_foreign(host: str, name: str, origin: str | None) -> Forbidden | None:
    if not is_loopback(name):
        return Forbidden(
            "Without a token only this host may call, by a loopback name",
            where=f"Host: {host[:100]}",
            do="Call 127.0.0.1 or localhost, or run the pipeline with a token.",
        )
    if origin is not None and origin.partition("://")[2] != host:
        return Forbidden(
            "Without a token pages of another origin may not call",
            where=f"Origin: {origin[:100]}",
            do="Run the pipeline with a token.",
        )
    return None


def check_access(host: str, token: str | None) -> None:
    """Refuse to listen where anyone could call: ``TokenMissing``, ``TokenInvalid``."""
    if token is not None:
        check_token(token)
    elif not is_loopback(host):
        raise TokenMissing(
            f"Anyone who reaches {host} could stop the pipeline and read its state",
            do="Set a token, or listen on 127.0.0.1.",
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this host.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "a.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
