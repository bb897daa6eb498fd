"""The OpenAPI document, and calls that are made and judged by it."""

from __future__ import annotations

import contextlib
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from anabranch.http.app import Application
from tests.http.little import Little
from tests.http.raw import Site

HANG_SECONDS = 20
LONGEST = {
    **{"/checkpoint": 600, "/load": 600, "/shutdown": 600, "/events": 86_400, "/scale": 600},
    **{"/scale/pause": 600, "/scale/resume": 600, "/scale/cancel": 600, "/rebalance": 600},
    **{"/dump_profile": 600, "/heap_profile": 600},
}
"""The calls that wait, and the seconds that they take."""

bounded = settings(
    max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)

# The document is that of every coordinator; whom it is tried on is left to the fixture.
schema = schemathesis.openapi.from_dict(Application(Little(), None).openapi())


def call(case: Any, api: Site) -> None:
    """Make a call and compare the answer with the document; those that wait, wait shortly."""
    asked = _number((case.query or {}).get("seconds", 30))
    waits = case.path in LONGEST and (case.method.upper(), case.path) != ("GET", "/scale")
    if waits and asked is not None and 1 < asked <= LONGEST[case.path]:
        case.query = {**(case.query or {}), "seconds": 0.2}
    answer = case.call(base_url=api.url, timeout=HANG_SECONDS)
    # Most texts are no SQL.
    excluded = [positive_data_acceptance] if case.path == "/query" else []
    if answer.status_code == 413:
        # A text that is too long may make the body too large: that is a rejection too.
        excluded.append(negative_data_rejection)
    case.validate_response(answer, excluded_checks=excluded)


def _number(asked: object) -> float | None:
    """What a parameter says as a number; some are made as text."""
    if isinstance(asked, bool) or not isinstance(asked, int | float | str):
        return None
    with contextlib.suppress(ValueError):
        return float(asked)
    return None
