"""A little coordinator behind a real server on loopback, and a raw way to call it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.http.app import Application
from anabranch.http.server import Server
from tests.http.little import Little
from tests.http.raw import Site


@pytest.fixture
def little() -> Little:
    """A pipeline that has not begun: tests choose its pace."""
    return Little()


@pytest.fixture
def site(little: Little) -> Iterator[Site]:
    """The pipeline, begun, and its server."""
    little.begin()
    with Server(Application(little, None)) as server:
        yield Site(server.address)
