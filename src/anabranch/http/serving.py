"""A leading coordinator with its HTTP server."""

from __future__ import annotations

import os
from pathlib import Path

from anabranch.coordinator.driver import Driver
from anabranch.http.address import Address, remove_address, write_address
from anabranch.http.app import Application
from anabranch.http.server import Server


class Served:
    """A pipeline served over HTTP; the address file in its directory locates it."""

    def __init__(self, driver: Driver, directory: Path, server: Server, token: str | None) -> None:
        """``driver`` must lead already, ``server`` must not have started."""
        self.coordinator = driver
        self._directory = directory
        self._server = server
        self._address = Address(server.address, os.getpid(), driver.status().leader, token)
        server.start()
        write_address(directory, self._address)

    @property
    def url(self) -> str:
        """Where the HTTP server listens."""
        return self._server.address

    def wait(self, seconds: float) -> bool:
        """Wait for the pipeline to end; false on timeout."""
        return self.coordinator.wait(seconds)

    def close(self) -> None:
        """Stop the server and remove the address. Abandons a pipeline that still runs."""
        if not self.coordinator.wait(0):
            self.coordinator.abandon()
        remove_address(self._directory, self._address)
        self._server.stop()


def served(
    driver: Driver, directory: Path, host: str, port: int, token: str | None, query_seconds: float
) -> Served:
    """Start a coordinator and serve it as soon as it leads; raises if it may not lead."""
    server = Server(Application(driver, token, query_seconds), host, port, token)
    driver.start()
    driver.wait_led()
    failure = driver.failure()
    if failure is not None:
        driver.wait()
        server.stop()
        raise failure
    return Served(driver, directory, server, token)
