"""Middleware that decides who may call, and how much they may send."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.errors import AnabranchError, Forbidden, RequestTooLarge, TokenMissing, Unauthorized
from anabranch.http.responses import problem_response
from anabranch.http.token import check_token
from anabranch.protocol.failures import failure_of

MOST_BODY_BYTES = 1 << 20
OPEN_PATHS = frozenset({"/health"})
"""Paths that need no token: they reveal only that the process is alive."""


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
            error = self._rejection(scope["path"], Headers(scope=scope))
            if error is not None:
                await _answer(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _rejection(self, path: str, headers: Headers) -> AnabranchError | None:
        if self._token is None:
            return _reject_foreign(headers)
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


class BoundedBody:
    """Rejects bodies larger than any call accepts, before reading them."""

    def __init__(self, app: ASGIApp, most: int = MOST_BODY_BYTES) -> None:
        """Wrap an application."""
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on, or reject it by its Content-Length."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > self._most):
            await _answer(self._too_large(), scope, receive, send)
            return
        await self._app(scope, self._limit(receive), send)

    def _limit(self, receive: Receive) -> Receive:
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most:
                raise self._too_large()
            return message

        return counting

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"The body has more than {self._most:,} bytes", do="Send less.")


async def _answer(error: AnabranchError, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else None
    await problem_response(failure_of(error), headers=headers)(scope, receive, send)


def _reject_foreign(headers: Headers) -> Forbidden | None:
    host = headers.get("host", "")
    if not is_loopback(_name(f"//{host}")):
        return Forbidden(
            "Without a token only this host may call, by a loopback name",
            where=f"Host: {host[:100]}",
            do="Call 127.0.0.1 or localhost, or run the pipeline with a token.",
        )
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return Forbidden(
            "Without a token pages of another origin may not call",
            where=f"Origin: {origin[:100]}",
            do="Run the pipeline with a token.",
        )
    return None


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


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
