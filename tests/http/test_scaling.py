"""Scaling over HTTP, against a served pipeline whose bins really move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anabranch.coordinator.operations import RescalePipeline
from anabranch.errors import OperationRefused
from anabranch.http.app import Application
from anabranch.http.client import Client
from anabranch.http.schemas import RebalanceRequest, ScaleRequest
from anabranch.http.server import Server
from anabranch.protocol.rescale_requests import (
    Balance,
    CancelRescale,
    PauseRescale,
    Rebalance,
    ResumeRescale,
    Scale,
)
from tests.http.little import BINS, Little
from tests.http.raw import Site, until


def owners(site: Site) -> int:
    return len(set(site.get("/status").json()["regions"][0]["bins"]))


def settled(site: Site) -> None:
    until(lambda: site.get("/scale").json()["rescale"] is None)


@pytest.fixture
def warm(site: Site, little: Little) -> Site:
    """A pipeline whose bins all hold something: otherwise they would cost nothing."""
    until(lambda: little.step > BINS)
    return site


def test_up_and_down_with_a_history(warm: Site, little: Little) -> None:
    report = warm.post("/scale", {"workers": 4})
    assert (report.status, report.json()["operation"], report.json()["done"]) == (
        200,
        "scale",
        True,
    )
    settled(warm)
    assert owners(warm) == 4
    assert warm.get("/status").json()["workers"] == 4
    assert warm.post("/scale", {"regions": {"by-step": 1}, "by": "load"}).status == 200
    settled(warm)
    assert owners(warm) == 1
    up, down = warm.get("/scale").json()["history"]
    assert (up["outcome"], up["moved"]["bins"], up["workers"]) == ("settled", 4, [0, 1, 2, 3])
    assert (down["outcome"], down["moved"]["bins"], len(down["workers"])) == ("settled", 6, 1)
    assert up["request"] == {
        "type": "scale",
        "workers": 4,
        "regions": [],
        "remove": [],
        "by": "bins",
    }
    assert little.asked == [
        RescalePipeline(Scale(4)),
        RescalePipeline(Scale(None, (("by-step", 1),), (), Balance.LOAD)),
    ]


def test_a_rescale_under_way_tells_how_far_it_is() -> None:
    little = Little(pace=0.001).begin()
    until(lambda: little.step > BINS)
    little.pace = 0.2
    with Server(Application(little, None)) as server:
        site = Site(server.address)
        site.post("/scale", {"workers": 4})
        until(lambda: site.get("/scale").json()["rescale"]["moved_bins"] == 2)
        found = site.get("/scale").json()["rescale"]
        assert (found["phase"], found["number"], found["left_bins"]) == ("moving", 1, 2)
        assert found["waiting"] == {"by-step": 2}
        assert found["in_hand_over"] == {"by-step": 1}
        assert found["moved_keys"] >= 2
        assert found["left_keys"] >= 2
        assert found["longest_seconds"] == 0.2
        assert (found["budget_bins"], found["budget_seconds"]) == (1, None)
        assert found["seconds_left"] > 0
        # two bins, a step each; one in which all is there, one to tell the workers
        assert found["steps_left"] == 4


def test_a_dry_run_changes_nothing(warm: Site, little: Little) -> None:
    before = little.rescale.assignment
    found = warm.post("/scale", {"workers": 4, "dry_run": True}).json()
    forecast = found["forecast"]
    assert (forecast["bins"], forecast["workers"]) == (4, [0, 1, 2, 3])
    assert sorted(forecast["target"][0]["workers"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert warm.post("/rebalance", {"dry_run": True}).json()["forecast"]["bins"] == 0
    assert (little.asked, little.rescale.assignment) == ([], before)
    refused = warm.post("/scale", {"dry_run": True}).problem(409, "operation.refused")
    assert "neither a number of workers" in refused["detail"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 409, "operation.refused"),
        ({"remove": [7]}, 409, "operation.refused"),
        ({"regions": {"other": 2}}, 409, "operation.refused"),
        ({"workers": 0}, 400, "request.invalid"),
        ({"workers": 2, "by": "luck"}, 400, "request.invalid"),
        ({"worker": 2}, 400, "request.invalid"),
    ],
)
def test_what_makes_no_sense_is_refused(
    warm: Site, body: dict[str, object], status: int, code: str
) -> None:
    warm.post("/scale", body).problem(status, code)
    assert warm.get("/scale").json() == {"rescale": None, "history": []}


@contextmanager
def served(little: Little) -> Iterator[Client]:
    with Server(Application(little.begin(), None)) as server:
        yield Client(server.address)


def test_paused_resumed_and_rolled_back_by_the_client() -> None:
    little = Little()
    with served(little) as client:
        until(lambda: client.status().step > BINS)
        little.pace = 0.2
        before = little.rescale.assignment.workers
        assert client.scale(ScaleRequest(4, dry_run=True)).forecast is not None
        assert client.scale(ScaleRequest(4)).done
        assert client.scale_pause().done
        paused = client.rescales().rescale
        assert paused is not None
        assert paused.phase == "paused"
        step = client.status().step
        until(lambda: client.status().step > step + 5)
        still = client.rescales().rescale
        assert still is not None
        assert still.moved_bins == paused.moved_bins
        client.scale_resume()
        until(lambda: client.rescales().rescale is None)
        assert len(set(little.rescale.assignment.workers)) == 4
        client.scale(ScaleRequest(workers=1))
        assert client.scale_cancel(roll_back=True).operation == "scale cancel"
        until(lambda: client.rescales().rescale is None)
        assert [each.outcome for each in client.rescales().history] == ["settled", "rolled-back"]
        assert sorted(set(little.rescale.assignment.workers)) == [0, 1, 2, 3]
        assert set(before) == {0, 1}
        client.rebalance(RebalanceRequest(("by-step",)))
        with pytest.raises(OperationRefused, match="no rescale is paused"):
            client.scale_resume()
    assert [each.request for each in little.asked if isinstance(each, RescalePipeline)] == [
        *(Scale(4), PauseRescale(), ResumeRescale(), Scale(1), CancelRescale(roll_back=True)),
        *(Rebalance(("by-step",)), ResumeRescale()),
    ]


def test_a_request_that_no_commit_knows_yet_answers_202(warm: Site) -> None:
    warm.post("/pause")
    report = warm.post("/scale?seconds=0.1", {"workers": 4})
    assert (report.status, report.json()["done"]) == (202, False)
    warm.post("/start")
    settled(warm)
    assert owners(warm) == 4
