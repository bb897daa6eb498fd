"""What the demo shows: a picture on a terminal, one line per step elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from anabranch.cli.demo.bins import COLOURS, Bins, bin_map
from anabranch.cli.demo.view import Frame, LineView, LiveView, Tier, draw, sparkline, view_for
from anabranch.coordinator.effects import StepDone
from anabranch.protocol.rescale_requests import Scale
from anabranch.protocol.status import RescaleStatus

STEPS = (
    StepDone(1, 1_000, 700, 5.0, {}),
    StepDone(2, 1_000, 900, 0.5, {}),
    StepDone(3, 2_000, 1_234, 0.25, {}),
)


def frame(steps: int, phase: str = "Orders arrive", *, finished: bool = False) -> Frame:
    tiers = (Tier("bronze", 3_000, 1_234_500), Tier("gold", 1_000, 617_250)) if steps else ()
    keys = STEPS[steps - 1].keys - len(tiers) if steps else 0
    return Frame(phase, finished, 0.0, STEPS[:steps], max(steps - 1, 0), 8_000, 4, keys, tiers)


MOVING = RescaleStatus(
    number=1,
    phase="moving",
    request=Scale(4),
    waiting={"by-customer": 48},
    in_hand_over={"by-customer": 16},
    moved_bins=16,
    moved_keys=1_600,
    moved_bytes=32_768,
    left_bins=48,
    left_keys=4_800,
    left_bytes=98_304,
    steps=1,
    steps_left=5,
    seconds_left=2.4,
    longest_seconds=0.5,
    usual_seconds=0.4,
    budget_seconds=0.016,
    budget_bytes=None,
    budget_bins=None,
)
OWNERS = (
    Bins("by-customer", tuple(bin % 2 for bin in range(224)) + (2,) * 32),
    Bins("by-tier", tuple(bin % 2 for bin in range(256))),
)


def rescaling(settled: tuple[str, ...] = ()) -> Frame:
    """A frame with bins on their way; or, with what it came to, after that."""
    tiers = tuple(Tier(name, 1_000, 617_250) for name in ("bronze", "silver", "gold", "platinum"))
    return replace(
        frame(3),
        tiers=tiers,
        bins=OWNERS,
        rescale=None if settled else MOVING,
        moved_in=frozenset({3}),
        settled=settled,
    )


def long() -> Frame:
    """A frame with as many steps as are shown, and more."""
    steps = tuple(StepDone(number, 10, 10, 12.5, {}) for number in range(1, 40))
    return replace(rescaling(), history=steps, moved_in=frozenset({38, 39}))


def picture(shown: Frame) -> list[str]:
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(draw(shown, "*", now=12.4))
    return console.export_text().splitlines()


def line_with(word: str, lines: list[str]) -> str:
    return next(line for line in lines if word in line)


def test_the_picture_has_all_numbers() -> None:
    lines = picture(frame(3))
    assert "* Orders arrive 12 s" in line_with("Orders arrive", lines)
    assert "4 JSON files" in line_with("JSON", lines)
    assert "1,232 customers" in line_with("JSON", lines)
    assert " 4,000 " in line_with("rows ", lines)
    # 2,000 rows in 0.25 s; bars on the scale of the warm steps: 200, 2,000 and 8,000 rows/s
    assert "8,000  ▁▃█" in line_with("rows/s", lines)
    assert "0.25 s  ██▅  median 0.38" in line_with("latency", lines)
    assert "1,234" in line_with("keys", lines)
    assert "3  committed, 2 published" in line_with("committed", lines)
    assert "12,345.00  " + "▇" * 24 in line_with("bronze", lines)
    assert "6,172.50  " + "▇" * 12 + " " in line_with("gold", lines)


@pytest.mark.parametrize("shown", [frame(3), rescaling(), rescaling(("Settled " * 20,)), long()])
def test_the_picture_fits_a_terminal_of_80_columns_and_24_lines(shown: Frame) -> None:
    lines = picture(shown)
    assert max(map(len, lines)) <= 79
    assert len(lines) <= 23


def test_the_picture_shows_the_bins_by_owner_and_how_far_they_are() -> None:
    lines = picture(rescaling())
    assert "scaling to 4 workers: 16/64 bins, 1,600/6,400 keys, 32.0 KiB, 2 s left" in line_with(
        "scaling to", lines
    )
    # three bins a cell, in two lines
    customers = line_with("by-customer", lines), lines[_place("by-customer", lines) + 1]
    cells = "".join(line.strip("│ ").removeprefix("by-customer").strip() for line in customers)
    assert len(cells) == 86
    assert cells == "01" * 37 + "0" + "2" * 11
    assert "median 0.38 / 0.25" in line_with("latency", lines)


def test_the_picture_says_what_a_rescale_came_to() -> None:
    lines = picture(rescaling(("Settled (4 workers): 64 bins moved",)))
    assert "Settled (4 workers): 64 bins moved" in "\n".join(lines)
    assert "going to" not in "\n".join(lines)


def test_each_worker_has_a_colour() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    table = bin_map([Bins("r", (0, 1))])
    found = {
        segment.text: segment.style.bgcolor.name
        for segment in console.render(table)
        if segment.style is not None and segment.style.bgcolor is not None
    }
    assert found == {"0": COLOURS[0], "1": COLOURS[1]}


def _place(word: str, lines: list[str]) -> int:
    return next(number for number, line in enumerate(lines) if word in line)


def test_lines_tell_bins_by_worker_and_what_a_rescale_came_to() -> None:
    out = io.StringIO()
    with LineView(Console(file=out, width=40)) as view:
        view.show(rescaling())
        view.show(rescaling(("Settled (4 workers): 64 bins moved.",)))
        view.show(rescaling(("Settled (4 workers): 64 bins moved.",)))
    lines = out.getvalue().splitlines()
    assert lines[2].endswith("published 2  bins by-customer 112+112+32, by-tier 128+128")
    assert lines[3].endswith("published 2  moving  bins by-customer 112+112+32, by-tier 128+128")
    assert lines[4:] == ["Settled (4 workers): 64 bins moved."]


def test_before_the_first_step_the_picture_says_why_it_takes_long() -> None:
    assert "The first step takes longest" in "\n".join(picture(frame(0, "Starting Spark")))


def test_lines_are_printed_once_per_step_and_phase() -> None:
    out = io.StringIO()
    with LineView(Console(file=out, width=40)) as view:
        for steps in (0, 1, 1, 3):
            view.show(frame(steps))
        view.show(frame(3, "Finished", finished=True))
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["Orders", "step", "step", "step", "Finished"]
    assert " ".join(lines[3].split()) == (
        "step 3 2,000 rows 4,000 so far 8,000 rows/s 0.25 s 1,234 keys published 2"
    )


def test_a_terminal_gets_the_picture_and_a_pipe_the_lines() -> None:
    assert isinstance(view_for(Console(file=io.StringIO())), LineView)
    assert isinstance(view_for(Console(file=io.StringIO(), force_terminal=True)), LiveView)


def test_the_last_picture_stays_on_the_terminal() -> None:
    out = io.StringIO()
    with LiveView(Console(file=out, force_terminal=True, width=100, height=30)) as view:
        view.show(frame(1))
        view.show(frame(3, "Finished", finished=True))
    last = out.getvalue().rpartition("anabranch demo")[2]
    assert "✓ Finished" in last
    assert "committed, 2 published" in last


@pytest.mark.parametrize(
    ("values", "top", "bars"),
    [([], 1.0, ""), ([0, 0], 0.0, "▁▁"), ([1, 2, 3, 4], 4.0, "▃▅▆█"), ([-1, 9], 4.0, "▁█")],
)
def test_sparklines(values: list[float], top: float, bars: str) -> None:
    assert sparkline(values, top) == bars
