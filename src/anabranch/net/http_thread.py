"""An HTTP server in its own thread, with bounded connections."""

from __future__ import annotations

import resource
import socket
import threading
import time
from typing import Any

import uvicorn

from anabranch.net.bounded_connection import HEAD_SECONDS, MOST_CONNECTIONS, BoundedConnection

ACCEPTED_AT_ONCE = 32
BACKLOG = 2048
"""How many connections may wait to be accepted: then a flood does not delay other clients."""

DESCRIPTORS = 4 * MOST_CONNECTIONS
START_SECONDS = 30.0


class HttpThread:
    """Serves an ASGI application on a bound socket, from ``start`` to ``stop``."""

    def __init__(
        self,
        app: Any,  # noqa: ANN401  (an ASGI application)
        bound: socket.socket,
        connection: type[BoundedConnection],
        *,
        lifespan: bool,
        stop_seconds: float,
    ) -> None:
        """Nobody is answered before ``start``.

        ``stop_seconds`` is how long calls in progress may take once the server stops.
        """
        _allow_descriptors()
        self._socket = bound
        self._stop_seconds = stop_seconds
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=connection,
                ws="none",
                lifespan="on" if lifespan else "off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=int(HEAD_SECONDS),
                # So many are accepted before the first is read: see ``start``.
                backlog=ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=int(stop_seconds),
            )
        )
        self._thread = threading.Thread(
            target=lambda: self._server.run(sockets=[bound]), name="anabranch-http", daemon=True
        )

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.server_state.connections)

    def start(self) -> bool:
        """Start serving; whether the server answers calls when this returns."""
        self._thread.start()
        late = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > late:
                return False
            time.sleep(0.005)
        self._socket.listen(BACKLOG)
        return True

    def stop(self) -> None:
        """Accept no more calls, give those in progress a while to finish, release the address."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(self._stop_seconds + 5)
        self._socket.close()


def _allow_descriptors() -> None:
    """Let connections not use up the process's descriptors: it has files to open as well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = DESCRIPTORS if hard == unlimited else min(DESCRIPTORS, hard)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
