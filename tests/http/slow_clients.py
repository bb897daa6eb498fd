"""Slow clients against a real server process: ``python -m tests.http.slow_clients``.

It serves a pipeline in a process of its own, holds many connections to it that send a byte of a
header now and then, and opens closed ones again. Meanwhile others call: each must be answered.
With ``--flow`` the pipeline is that of ``anabranch run``, else a little one without Spark.
It ends after the given time with the figures on stdout, and with code 1 if a call failed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from anabranch.errors import CoordinatorUnreachable
from anabranch.http.address import Address, read_address, write_address
from tests.http.raw import Site

START_SECONDS = 240.0
HEAD = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
CALLS = (("GET", "/status"), ("GET", "/health"), ("POST", "/pause"), ("POST", "/start"))


class SlowClients:
    """Connections that send a byte every ``pause`` seconds; closed ones are opened again then."""

    def __init__(self, site: Site, count: int, pause: float) -> None:
        self._count = count
        self._pause = pause
        self._port = int(site.url.rpartition(":")[2])
        self._open: dict[socket.socket, float] = {}
        self._selector = selectors.DefaultSelector()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.opened = self.closed = self.bytes = 0
        self.full = threading.Event()

    def __enter__(self) -> SlowClients:
        self._thread.start()
        assert self.full.wait(60), "the connections could not be made"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for each in self._open:
            each.close()

    def _run(self) -> None:
        missing, reopen_at = self._count, 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= reopen_at:
                for _ in range(missing):
                    self._connect()
                missing, reopen_at = 0, now + self._pause
                self.full.set()
            missing += self._drop_closed()
            for each, due in list(self._open.items()):
                if now >= due:
                    self._send(each, b"a", now)

    def _connect(self) -> None:
        with suppress(OSError):  # the server has ended
            made = socket.create_connection(("127.0.0.1", self._port), timeout=10)
            made.setblocking(False)
            self._selector.register(made, selectors.EVENT_READ)
            self.opened += 1
            self._send(made, HEAD, time.monotonic())

    def _send(self, to: socket.socket, data: bytes, now: float) -> None:
        self._open[to] = now + self._pause
        with suppress(OSError):  # it will be found closed
            self.bytes += to.send(data)

    def _drop_closed(self) -> int:
        """The server answers or closes only when it has had enough."""
        found = self._selector.select(0.05)
        for key, _ in found:
            closed = key.fileobj
            assert isinstance(closed, socket.socket)
            self._selector.unregister(closed)
            closed.close()
            del self._open[closed]
        self.closed += len(found)
        return len(found)


def call_all(site: Site, seconds: float) -> tuple[Counter[str], float]:
    """Make the calls in turn for a while: how each was answered, and the longest time."""
    found: Counter[str] = Counter()
    longest = 0.0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for method, path in CALLS:
            began = time.monotonic()
            try:
                answer = str(site.call(method, path).status)
            except (OSError, http.client.HTTPException) as error:
                answer = type(error).__name__
            longest = max(longest, time.monotonic() - began)
            found[f"{method} {path} {answer}"] += 1
        time.sleep(0.05)
    return found, longest


@contextmanager
def server_process(directory: Path, flow: str | None) -> Iterator[Site]:
    """A served pipeline in a process of its own; it is shut down by a call."""
    line = [sys.executable, "-m", "tests.http.slow_clients", "--serve", str(directory)]
    if flow is not None:
        line = [sys.executable, "-m", "anabranch.cli.app", "run", flow]
        line += ["--directory", str(directory)]
    with (directory.parent / "server.log").open("wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log)
    try:
        late = time.monotonic() + START_SECONDS
        while True:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < late, "the server did not start"
            with suppress(CoordinatorUnreachable):
                yield Site(read_address(directory).url)
                return
            time.sleep(0.05)
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()


def serve_little(directory: Path) -> None:
    """Serve a little pipeline until it is shut down."""
    from anabranch.http.app import Application  # noqa: PLC0415  (clients need none of it)
    from anabranch.http.server import Server  # noqa: PLC0415
    from anabranch.protocol.status import ENDED  # noqa: PLC0415
    from tests.http.little import Little  # noqa: PLC0415

    little = Little().begin()
    with Server(Application(little, None)) as server:
        write_address(directory, Address(server.address, os.getpid(), 1))
        while little.phase not in ENDED:
            time.sleep(0.05)


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pause", type=float, default=3.0, help="between two bytes")
    parser.add_argument("--flow", help="FILE:FLOW of a pipeline to run with Spark")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve_little(given.serve)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "state"
        directory.mkdir()
        with (
            server_process(directory, given.flow) as site,
            SlowClients(site, given.connections, given.pause) as slow,
        ):
            answers, longest = call_all(site, given.seconds)
            ended = _status_of_shutdown(site)
    answers[f"POST /shutdown {ended}"] += 1
    report = {"opened": slow.opened, "closed": slow.closed, "bytes": slow.bytes}
    print(json.dumps({**report, "longest_ms": round(1000 * longest), "answers": answers}))
    return 0 if all(each.endswith((" 200", " 202")) for each in answers) else 1


def _status_of_shutdown(site: Site) -> str:
    with closing(site.connection(60)) as connection:
        try:
            connection.request("POST", "/shutdown")
            return str(connection.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
