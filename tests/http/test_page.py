"""The calls that docs/http.md shows are answered as it says; its tables name what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from anabranch.http.app import Application
from anabranch.http.openapi import TEXTS
from anabranch.http.routes.metrics import Meter
from anabranch.http.server import Server
from anabranch.protocol.status import CheckpointStatus
from scripts.check_docs import parse
from tests.http.little import Little
from tests.http.raw import Site, until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http.md"


def shortened(report: Any, shown: Any) -> Any:
    """The answer with the fields only that the page shows."""
    if isinstance(shown, dict) and isinstance(report, dict):
        return {name: shortened(report.get(name), part) for name, part in shown.items()}
    if isinstance(shown, list) and isinstance(report, list) and len(shown) == len(report):
        return [shortened(one, part) for one, part in zip(report, shown, strict=True)]
    return report


def test_the_examples_are_true() -> None:
    blocks = [block.text for block in parse(PAGE).blocks if block.language == "http"]
    assert len(blocks) >= 7
    # It takes one step and then sleeps.
    little = Little(pace=1000, step=41).begin()
    until(lambda: little.step == 42)
    with Server(Application(little, None)) as server:
        site = Site(server.address)
        for block in blocks:
            request, _, answer = block.partition("\n\n")
            line, _, body = request.partition("\n")
            method, path = line.split()
            status, _, shown = answer.partition("\n")
            headers = {"Content-Type": "application/json"} if body else {}
            reply = site.call(method, path, body.encode() or None, headers)
            assert reply.status == int(status), block
            assert shortened(reply.json(), json.loads(shown)) == json.loads(shown)


def test_every_call_and_status_has_its_place() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path in Application(Little(), None).openapi()["paths"]:
        assert f"`{path}`" in text or f"`GET {path}`" in text or f"`POST {path}`" in text
    listed = re.findall(r"^\| ((?:\d{3}(?:, )?)+) \|", text, re.MULTILINE)
    assert {int(code) for row in listed for code in row.split(", ")} == set(TEXTS)


def test_every_metric_is_listed() -> None:
    text = PAGE.read_text(encoding="utf-8")
    little = Little(step=3, checkpoints=[CheckpointStatus(2, 0, 2, 2, 32, 0.5)])
    found = re.findall(r"^# TYPE (\w+) ", Meter().collect(little.status()).decode(), re.MULTILINE)
    assert len(found) > 20
    for name in found:
        if not name.endswith("_created"):
            assert f"`{name}`" in text
