"""``anabranch scale`` and ``rebalance``, each against a real server whose bins really move."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from anabranch.cli.scale_progress import await_rescale
from anabranch.cli.scale_text import rescale_text
from anabranch.coordinator.operations import RescalePipeline
from anabranch.coordinator.port import Answered
from anabranch.http.client import Client
from anabranch.http.schemas import ScaleAnswer, ScaleRequest
from anabranch.protocol.rescale_requests import (
    Balance,
    CancelRescale,
    PauseRescale,
    Rebalance,
    RescaleRequest,
    ResumeRescale,
    Scale,
)
from tests.cli.test_remote import Running, failure, invoke, served
from tests.http.little import BINS, Little
from tests.http.little_rescale import LittleRescale
from tests.http.raw import until


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with served(Little(), tmp_path) as found:
        until(lambda: found.little.step > BINS)
        yield found


def owners(running: Running) -> int:
    return len(set(running.little.rescale.assignment.workers))


def paused(running: Running, workers: str) -> None:
    """Ask for a rescale that does not begin to move: both requests come before the next step."""
    running("pause")
    running("scale", workers, "--seconds", "0", code=5)
    running("scale", "pause", "--seconds", "0", code=5)
    running("start")


def test_scale_waits_and_says_what_was_moved(running: Running) -> None:
    said = running("scale", "4")
    assert said.startswith("Settled (4 workers): 4 bins, ")
    assert said.endswith(" Workers: 0, 1, 2, 3.\n")
    assert owners(running) == 4
    found = json.loads(running("scale", "1", "--json"))
    assert (found["operation"], found["done"]) == ("scale", True)
    assert found["status"]["rescale"] is None
    assert [each["outcome"] for each in found["status"]["rescales"]] == ["settled"] * 2
    assert owners(running) == 1


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("--region", "by-step", "3"), Scale(None, (("by-step", 3),))),
        (("3", "--region", "by-step"), Scale(None, (("by-step", 3),))),
        (("--region", "by-step=3"), Scale(None, (("by-step", 3),))),
        (("2", "--region", "by-step=3"), Scale(2, (("by-step", 3),))),
        (("--remove", "1"), Scale(None, (), (1,))),
        (("to", "4", "--by", "load"), Scale(4, by=Balance.LOAD)),
    ],
)
def test_what_is_asked_for(running: Running, arguments: tuple[str, ...], asked: Scale) -> None:
    said = running("scale", *arguments, "--no-wait")
    assert said == "The rescale is in progress: see `anabranch scale status`.\n"
    assert running.little.asked == [RescalePipeline(asked)]


def test_a_dry_run(running: Running) -> None:
    said = running("scale", "4", "--dry-run")
    assert said.startswith("Would move 4 bins with ")
    assert said.endswith("Workers after it: 0, 1, 2, 3. Nothing was changed.\n")
    assert json.loads(running("scale", "4", "--dry-run", "--json"))["forecast"]["bins"] == 4
    assert running("rebalance", "--dry-run") == "Nothing would be moved.\n"
    assert running.little.asked == []


def test_pause_status_resume_cancel_history(running: Running) -> None:
    assert running("scale", "status") == "No rescale is in progress.\n"
    assert running("scale", "history") == "No rescale has finished yet.\n"
    paused(running, "4")
    assert running("scale", "pause") == "The rescale is paused.\n"
    assert running("scale", "status").startswith("Rescale 1, 4 workers: paused, ")
    assert "Rescale 1, 4 workers: paused" in running("status")
    found = json.loads(running("scale", "status", "--json"))
    assert found["rescale"]["phase"] == "paused"
    assert running("scale", "resume").startswith("Settled (4 workers): 4 bins")
    paused(running, "1")
    assert running("scale", "cancel", "--roll-back").startswith("Rolled back (1 worker): ")
    assert owners(running) == 4
    lines = running("scale", "history").splitlines()
    assert [line.split()[0] for line in lines] == ["rescale", "1", "2"]
    assert "rolled-back" in lines[2]
    report = json.loads(running("scale", "history", "--json"))
    assert [each["outcome"] for each in report] == ["settled", "rolled-back"]
    running("rebalance", "by-step", "--by", "bins")
    assert [each.request for each in running.little.asked if isinstance(each, RescalePipeline)] == [
        *(
            Scale(4),
            PauseRescale(),
            PauseRescale(),
            ResumeRescale(),
            Scale(1),
            PauseRescale(),
            CancelRescale(roll_back=True),
        ),
        Rebalance(("by-step",), Balance.BINS),
    ]


def test_what_is_not_over_in_time_ends_with_5(running: Running) -> None:
    running.little.pace = 1.0
    assert "still in progress" in running("scale", "3", "--seconds", "1.5", code=5)
    running("pause")
    assert "no step has committed it yet" in running("scale", "2", "--seconds", "0", code=5)


def meanwhile(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    asked: RescaleRequest,
    *,
    late: bool,
) -> None:
    """Another shell asks for something as soon as the call is answered.

    When ``late``, the answer shows the pipeline after that.
    """
    # Far longer than it takes to ask: one bin moves in a step.
    running.little.pace = 0.25
    real = getattr(Client, call)

    def answered(client: Client, *given: Any, **options: Any) -> ScaleAnswer:
        answer: ScaleAnswer = real(client, *given, **options)
        assert running.little.ask(RescalePipeline(asked), 60) == Answered(step=running.little.step)
        running.little.pace = 0.02
        return msgspec.structs.replace(answer, status=client.status()) if late else answer

    monkeypatch.setattr(Client, call, answered)


OTHERS = pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Scale(3), "Replaced (4 workers): "),
        (CancelRescale(), "Cancelled (4 workers): "),
        (CancelRescale(roll_back=True), "Rolled back (4 workers): "),
    ],
)


@OTHERS
@pytest.mark.parametrize("late", [False, True])
def test_a_rescale_that_others_have_ended_ends_with_3(
    running: Running, monkeypatch: pytest.MonkeyPatch, asked: RescaleRequest, said: str, late: bool
) -> None:
    meanwhile(running, monkeypatch, "scale", asked, late=late)
    assert running("scale", "4", code=3).startswith(said)


@OTHERS
def test_json_says_that_it_is_not_done(
    running: Running, monkeypatch: pytest.MonkeyPatch, asked: RescaleRequest, said: str
) -> None:
    meanwhile(running, monkeypatch, "scale", asked, late=False)
    found = json.loads(running("scale", "4", "--json", code=3))
    assert (found["done"], found["status"]["rescales"][0]["request"]["workers"]) == (False, 4)


def test_a_resumed_rescale_that_is_replaced_ends_with_3(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused(running, "4")
    meanwhile(running, monkeypatch, "scale_resume", Scale(3), late=False)
    assert running("scale", "resume", code=3).startswith("Replaced (4 workers): ")


def test_a_roll_back_that_is_resumed_does_not_settle(running: Running) -> None:
    running.little.pace = 0.25
    running("scale", "4", "--no-wait")
    until(lambda: (found := running.little.rescale.status) is not None and found.moved_bins > 2)
    little = running.little
    for asked in (CancelRescale(roll_back=True), PauseRescale()):
        assert little.ask(RescalePipeline(asked), 0).failure is None
    assert running("scale", "resume", code=3).startswith("Rolled back (4 workers): ")


def test_a_roll_back_that_is_replaced_ends_with_3(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.little.pace = 0.25
    running("scale", "4", "--no-wait")
    until(lambda: (found := running.little.rescale.status) is not None and found.moved_bins > 1)
    assert running.little.ask(RescalePipeline(PauseRescale()), 0).failure is None
    meanwhile(running, monkeypatch, "scale_cancel", Scale(3), late=False)
    text = running("scale", "cancel", "--roll-back", code=3)
    assert text.startswith("Replaced (4 workers): ")


def test_a_rescale_that_nobody_remembers_is_not_done(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LittleRescale, "history", ())
    text = running("scale", "4", code=3)
    assert text.startswith("The outcome of the rescale is unknown")


def test_a_bar_shows_bins_keys_time_longest_step_and_budget(tmp_path: Path) -> None:
    with served(Little(), tmp_path) as running:
        until(lambda: running.little.step > BINS)
        running.little.pace = 0.2
        client = Client.of_directory(running.directory)
        console = Console(force_terminal=True, record=True, width=200, file=io.StringIO())
        answer = client.scale(ScaleRequest(4))
        seen = await_rescale(client, answer, 60, console)
        assert (seen.number, seen.status.rescale) == (1, None)
        shown = console.export_text()
        assert re.search(r"\b[123]/4 bins", shown), shown
        for text in ("4 workers", " keys ", " s left", "longest step 0.20 s", "budget 1"):
            assert text in shown


def test_the_text_names_the_bins_that_wait_and_those_in_hand_over(running: Running) -> None:
    running.little.pace = 0.2
    running("scale", "4", "--no-wait")
    client = Client.of_directory(running.directory)
    until(lambda: (found := client.rescales().rescale) is not None and found.moved_bins == 2)
    rescale = client.rescales().rescale
    assert rescale is not None
    assert rescale_text(rescale).splitlines()[-1] == "by-step: 2 bins wait, 1 in hand-over"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("scale", "--remove", "9"), "[operation.refused] This rescale cannot be done"),
        (("scale", "--region", "other=2"), "[operation.refused] This rescale cannot be done"),
        (("scale", "resume"), "[operation.refused] This cannot be done now: no rescale is paused"),
    ],
)
def test_refusals_end_with_3(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    given = (*arguments, "--directory", str(running.directory))
    code, text = failure(monkeypatch, capsys, *given)
    assert (code, text.startswith(f"error: {said}")) == (3, True), text


@pytest.mark.parametrize(
    "arguments",
    [
        ("scale",),
        ("scale", "0", "--directory", "d"),
        ("scale", "20000", "--directory", "d"),
        ("scale", "--region", "by-step=20000", "--directory", "d"),
        ("scale", "--remove", "20000", "--directory", "d"),
        ("scale", "many", "--directory", "d"),
        ("scale", "--region", "by-step", "--directory", "d"),
        ("scale", "4", "--by", "luck", "--directory", "d"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    invoke(*arguments, code=2)


def test_the_help_lists_the_verbs() -> None:
    text = invoke("scale", "--help")
    for verb in ("to", "status", "pause", "resume", "cancel", "history"):
        assert f" {verb} " in text
