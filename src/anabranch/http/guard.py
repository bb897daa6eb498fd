"""Who may call, and how much they may send: rings around the application."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.errors import (
    AnabranchError,
    Forbidden,
    RequestTooLarge,
    TokenMissing,
    Unauthorized,
)
from anabranch.http.responses import problem_response
from anabranch.http.token import check_token
from anabranch.protocol.failures import failure_of

MOST_BODY_BYTES = 1 << 20
OPEN_PATHS = frozenset({"/health"})
"""Paths that answer without a token: they tell no more than that the process lives."""


class Guard:
    """Lets calls through that have the token, or where there is none, that come from this host.

    Without a token any process of this host may call, but no web page that the user happens to
    look at: neither from another origin, nor by a name that was made to mean this host.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        """Guard an application."""
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on, or answer it here."""
        if scope["type"] == "http":
            error = self._objection(scope["path"], Headers(scope=scope))
            if error is not None:
                await _answer(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _objection(self, path: str, headers: Headers) -> AnabranchError | None:
        if self._token is None:
            return _foreign(headers)
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
        # Headers are Latin-1 on the wire; the comparison takes as long whatever is given.
        same = hmac.compare_digest(given.strip().encode("latin-1"), token)
        return kind.lower() == "bearer" and same


class BoundedBody:
    """Refuses bodies that are larger than any call takes, before they are read."""

    def __init__(self, app: ASGIApp, most: int = MOST_BODY_BYTES) -> None:
        """Bound the bodies that an application gets."""
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on, or answer it here when it says how much it is going to send."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "")
        if said.isascii() and said.isdigit() and (len(said) > 18 or int(said) > self._most):
            await _answer(self._too_large(), scope, receive, send)
            return
        await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
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


def _foreign(headers: Headers) -> Forbidden | None:
    host = headers.get("host", "")
    if not is_loopback(_name(f"//{host}")):
        return Forbidden(
            "Without a token only this host may call, by a name of loopback",
            where=f"Host: {host[:100]}",
            do="Call 127.0.0.1 or localhost, or run the pipeline with a token.",
        )
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return Forbidden(
            "Without a token no page of another origin may call",
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
    """Refuse to listen where anybody could call: ``TokenMissing``, ``TokenInvalid``."""
    if token is not None:
        check_token(token)
    elif not is_loopback(host):
        raise TokenMissing(
            f"Whoever reaches {host} could stop the pipeline and read its state",
            do="Give a token, or listen on 127.0.0.1.",
        )


def is_loopback(host: str) -> bool:
    """Whether a host's name or number can only mean this host.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "a.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
