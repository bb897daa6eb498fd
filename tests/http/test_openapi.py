"""schemathesis over the OpenAPI document: nothing undocumented, no 500, no hang.

The tests take the served application from the fixture ``api``, a fresh one for each test: whoever
has another coordinator overrides it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance

from anabranch.http.app import build_app
from anabranch.http.server import Server
from tests.http.little import Little
from tests.http.raw import Site

HANG_SECONDS = 20
TOKEN = "s3cret"

bounded = settings(
    max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@pytest.fixture
def api() -> Iterator[Site]:
    """A served application that wants a token."""
    with Server(build_app(Little().begin(), TOKEN)) as server:
        yield Site(server.address, TOKEN)


# The document is that of every coordinator; whom it is tried on is left to the fixture.
schema = schemathesis.openapi.from_dict(build_app(Little(), TOKEN).openapi())


def call(case: Any, api: Site) -> None:
    """Make a call and compare the answer with the document; those that wait, wait shortly."""
    asked = (case.query or {}).get("seconds", 30)
    if isinstance(asked, int | float) and not isinstance(asked, bool) and asked > 1:
        longest = 86_400 if case.path == "/events" else 600
        if asked <= longest:
            case.query = {**(case.query or {}), "seconds": 0.2}
    case.call_and_validate(
        base_url=api.url,
        headers={"Authorization": f"Bearer {api.token}"},
        timeout=HANG_SECONDS,
        # Most texts are no SQL.
        excluded_checks=[positive_data_acceptance] if case.path == "/query" else [],
    )


@schema.parametrize()
@bounded
def test_every_call_answers_as_documented(case: Any, api: Site) -> None:
    call(case, api)


def test_every_call_of_the_design_is_documented(api: Site) -> None:
    found = api.get("/openapi.json").json()["paths"]
    assert {(method, path) for path, methods in found.items() for method in methods} == {
        *(("post", f"/{name}") for name in ("start", "pause", "shutdown", "checkpoint", "load")),
        *(("get", f"/{name}") for name in ("checkpoints", "stats", "metrics", "metadata")),
        *(("get", f"/{name}") for name in ("status", "events", "health")),
        ("post", "/query"),
    }
    for methods in found.values():
        for operation in methods.values():
            assert {"200", "400", "401", "405", "500", "503"} <= set(operation["responses"])
            assert "422" not in operation["responses"] or "Spark" in json.dumps(operation)


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


@pytest.mark.parametrize("path", ["/load", "/query"])
def test_hostile_bodies_are_refused(api: Site, path: str) -> None:
    for body in HOSTILE:
        reply = api.call("POST", path, body, {"Content-Type": "application/json"})
        code = "query.invalid" if path == "/query" and b"u0000" in body else "request.invalid"
        reply.problem(400, code)


def test_any_bytes_get_an_answer(api: Site) -> None:
    @bounded
    @given(body=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
    def check(body: bytes) -> None:
        for path in ("/load", "/query", "/pause"):
            reply = api.call("POST", path, body, {"Content-Type": "application/json"})
            assert reply.status in (200, 400)

    check()
