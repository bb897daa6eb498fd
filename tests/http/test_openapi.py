"""schemathesis over the OpenAPI document: nothing undocumented, no 500, no hang.

Each call and test gets a fresh coordinator of each kind in ``APIS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.http.app import Application
from anabranch.http.server import Server
from tests.http.documented import bounded, call, schema
from tests.http.little import Little
from tests.http.raw import Site


@contextmanager
def little_api() -> Iterator[Site]:
    """A little coordinator behind a server."""
    with Server(Application(Little().begin(), None)) as server:
        yield Site(server.address)


APIS: dict[str, Callable[[], AbstractContextManager[Site]]] = {"little": little_api}
"""Everything that is tried: each gives a served coordinator without a token."""


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> Iterator[Site]:
    with APIS[request.param]() as site:
        yield site


@schema.parametrize()
@bounded
def test_every_call_answers_as_documented(case: Any, api: Site) -> None:
    call(case, api)


def test_every_call_of_the_design_is_documented(api: Site) -> None:
    found = api.get("/openapi.json").json()["paths"]
    assert {(method, path) for path, methods in found.items() for method in methods} == {
        *(("post", f"/{name}") for name in ("start", "pause", "shutdown", "checkpoint", "load")),
        *(("post", f"/input_endpoints/{{source}}/{name}") for name in ("start", "pause")),
        *(("get", f"/{name}") for name in ("checkpoints", "stats", "metrics", "metadata")),
        *(("get", f"/{name}") for name in ("status", "events", "health")),
        *(("post", f"/{name}") for name in ("dump_profile", "heap_profile")),
        *(("post", f"/scale/{name}") for name in ("pause", "resume", "cancel")),
        *(("get", "/scale"), ("post", "/scale"), ("post", "/rebalance"), ("post", "/query")),
    }
    for methods in found.values():
        for operation in methods.values():
            assert {"200", "400", "401", "405", "500", "503"} <= set(operation["responses"])
            assert "422" not in operation["responses"] or "query" in json.dumps(operation)


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"step": 1e999}',
    b'{"step": 99999999999999999999999999}',
    b'{"step": true}',
    b'{"step": 1, "step": 2, "more": 3}',
    b'{"sql": "\\ud800"}',
    b'{"sql": "select \\u0000"}',
    b'{"sql": 1}',
    b'{"sql": "select 1", "rows": -1}',
    b'{"sql": "select 1", "seconds": 0}',
    b'{"sql": "select 1", "format": "exe"}',
    b"\xff\xfe{}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
]


@pytest.mark.parametrize("path", ["/load", "/query", "/scale", "/rebalance"])
def test_hostile_bodies_are_refused(api: Site, path: str) -> None:
    for body in HOSTILE:
        reply = api.call("POST", path, body, {"Content-Type": "application/json"})
        code = "query.invalid" if path == "/query" and b"u0000" in body else "request.invalid"
        reply.problem(400, code)


def test_any_bytes_get_an_answer(api: Site) -> None:
    @bounded
    @given(body=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
    def check(body: bytes) -> None:
        for path in ("/load", "/query", "/scale", "/rebalance", "/pause"):
            reply = api.call("POST", path, body, {"Content-Type": "application/json"})
            assert reply.status in (200, 400)

    check()
