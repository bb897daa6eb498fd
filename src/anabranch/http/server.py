"""The HTTP server: the application on a socket, in its own thread."""

from __future__ import annotations

import resource
import socket
import threading
import time
from typing import Self

import uvicorn

from anabranch.errors import AddressTaken
from anabranch.http.app import Application
from anabranch.http.connection import HEAD_SECONDS, MOST_CONNECTIONS, BoundedConnection
from anabranch.http.guard import check_access

ACCEPTED_AT_ONCE = 32
BACKLOG = 2048
"""How many connections may wait to be accepted: then a flood does not delay other clients."""

DESCRIPTORS = 4 * MOST_CONNECTIONS

START_SECONDS = 30.0
STOP_SECONDS = 5.0
"""How long calls in progress may take once the server stops."""


class Server:
    """Serves an application from ``start`` to ``stop``.

    It binds the socket when constructed, so the address is known before it serves.
    """

    def __init__(
        self, app: Application, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        """Bind the address; port 0 picks a free one. ``AddressTaken``; see ``check_access``."""
        check_access(host, token)
        _allow_descriptors()
        self._app = app
        self._host = host
        self._socket = _bind(host, port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=BoundedConnection,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=int(HEAD_SECONDS),
                # So many are accepted before the first is read: see ``start``.
                backlog=ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=int(STOP_SECONDS),
            )
        )
        self._thread = threading.Thread(
            target=lambda: self._server.run(sockets=[self._socket]),
            name="anabranch-http",
            daemon=True,
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
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise AddressTaken(
                    "The HTTP server did not start", where=self.address, do="See the log."
                )
            time.sleep(0.005)
        self._socket.listen(BACKLOG)
        return self

    def stop(self) -> None:
        """Accept no more calls, give those in progress a while to finish, release the address."""
        # Otherwise watchers would keep their calls open until the timeout.
        self._app.feed.close()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS + 5)
        self._socket.close()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


def _allow_descriptors() -> None:
    """Let connections not use up the process's descriptors: it has files to open as well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = DESCRIPTORS if hard == unlimited else min(DESCRIPTORS, hard)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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
