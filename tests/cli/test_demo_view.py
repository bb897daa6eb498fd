"""What the demo shows: a picture on a terminal, one line per step elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from anabranch.cli.demo_view import Frame, LineView, LiveView, Tier, draw, sparkline, view_for
from anabranch.coordinator.effects import StepDone

STEPS = (
    StepDone(1, 1_000, 700, 5.0, {}),
    StepDone(2, 1_000, 900, 0.5, {}),
    StepDone(3, 2_000, 1_234, 0.25, {}),
)


def frame(steps: int, phase: str = "Orders arrive", *, finished: bool = False) -> Frame:
    tiers = (Tier("bronze", 3_000, 1_234_500), Tier("gold", 1_000, 617_250)) if steps else ()
    keys = STEPS[steps - 1].keys - len(tiers) if steps else 0
    return Frame(phase, finished, 0.0, STEPS[:steps], max(steps - 1, 0), 8_000, 4, keys, tiers)


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


def test_the_picture_fits_a_terminal_of_80_columns_and_24_lines() -> None:
    lines = picture(frame(3))
    assert max(map(len, lines)) <= 79
    assert len(lines) <= 23


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
