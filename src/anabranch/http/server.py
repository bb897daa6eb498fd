"""The HTTP server: the application on a socket, in its own thread."""

from __future__ import annotations

import socket
from typing import Self

from starlette.responses import Response

from anabranch.errors import AddressTaken
from anabranch.http.app import Application
from anabranch.http.guard import check_access
from anabranch.http.responses import problem_response
from anabranch.net.bounded_connection import BoundedConnection
from anabranch.net.http_thread import HttpThread
from anabranch.protocol.node import Failure

STOP_SECONDS = 5.0
"""How long calls in progress may take once the server stops."""


class ProblemConnection(BoundedConnection):
    """A connection whose errors are problem documents."""

    def refusal(self, failure: Failure, place: str) -> Response:
        """A problem document."""
        return problem_response(failure, place)


class Server:
    """Serves an application from ``start`` to ``stop``.

    It binds the socket when constructed, so the address is known before it serves.
    """

    def __init__(
        self, app: Application, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        """Bind the address; port 0 picks a free one. ``AddressTaken``; see ``check_access``."""
        check_access(host, token)
        self._app = app
        self._host = host
        self._socket = _bind(host, port)
        self._thread = HttpThread(
            app, self._socket, ProblemConnection, lifespan=True, stop_seconds=STOP_SECONDS
        )

    @property
    def address(self) -> str:
        """The URL to call, without a trailing slash; loopback if it listens on all addresses."""
        host, port = self._socket.getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> Self:
        """Start serving; returns when the server answers calls."""
        if not self._thread.start():
            raise AddressTaken(
                "The HTTP server did not start", where=self.address, do="See the log."
            )
        return self

    def stop(self) -> None:
        """Accept no more calls, give those in progress a while to finish, release the address."""
        # Otherwise watchers would keep their calls open until the timeout.
        self._app.feed.close()
        self._thread.stop()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._thread.connections

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


def _bind(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
        except BaseException:
            made.close()
            raise
        return made
    except (OSError, OverflowError) as error:
        raise AddressTaken(
            f"Cannot listen: {error}",
            where=f"{host}:{port}",
            do="Choose another host or port; port 0 picks a free one.",
        ) from error
