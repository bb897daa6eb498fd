"""The windows in which the long run looks at what is held."""

from __future__ import annotations

import pytest

from benchmarks.tiny_steps import Sample, Windows


@pytest.mark.parametrize(
    ("steps", "early", "late"),
    [(20_000, (2_000, 3_000), (19_000, 20_000)), (300, (30, 50), (280, 300))],
)
def test_windows_are_after_a_tenth_and_at_the_end(
    steps: int, early: tuple[int, int], late: tuple[int, int]
) -> None:
    windows = Windows(steps)
    looked = [step for step in range(1, steps + 1) if windows.wanted(step)]
    assert len(looked) == 40
    assert all(early[0] < step <= early[1] or late[0] < step <= late[1] for step in looked)
    ends = [step for step in range(1, steps + 1) if windows.last_of_window(step)]
    assert ends == [early[1], late[1]]


def test_the_most_of_each_window_is_compared() -> None:
    samples = [
        Sample(40, {"a": 1.0}),
        Sample(50, {"a": 3.0, "b": 7.0}),
        Sample(290, {"a": 9.0}),
        Sample(300, {"a": 2.0, "b": 5.0}),
    ]
    assert Windows(300).compared(samples) == {
        "early: a": 3.0,
        "early: b": 7.0,
        "late: a": 9.0,
        "late: b": 5.0,
    }
