"""Lines where they stay: what is new, ever less often, and nothing twice."""

from __future__ import annotations

import msgspec

from anabranch.cli.line_pace import LinePace
from anabranch.protocol.status import Phase, Status
from tests.http.little import Little


def look(step: int, phase: Phase = Phase.RUNNING, **more: object) -> Status:
    return msgspec.structs.replace(Little().status(), phase=phase, step=step, **more)


def due(looks: list[tuple[float, Status]]) -> list[float]:
    """When a pipeline that looks like this gets a line."""
    pace = LinePace()
    return [now for now, status in looks if pace.is_due(status, now)]


def test_a_pipeline_in_which_nothing_happens_gets_one_line() -> None:
    assert due([(float(now), look(7)) for now in range(3600)]) == [0.0]


def test_steady_steps_get_a_line_ever_less_often_down_to_one_a_minute() -> None:
    lines = due([(float(now), look(now)) for now in range(600)])
    # Each after twice the time: 1, 2, 4, 8, 16, 32 and then 60 seconds.
    assert lines[:7] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0]
    assert lines[7:] == [123.0 + 60 * more for more in range(8)]


def test_a_rare_step_gets_a_line_at_once() -> None:
    looks = [(float(now), look(now // 300)) for now in range(1500)]
    assert due(looks) == [0.0, 300.0, 600.0, 900.0, 1200.0]


def test_a_new_phase_gets_a_line_at_once_and_the_end_none() -> None:
    steady = [(float(now), look(now)) for now in range(100)]
    paused = [(100.0, look(100, Phase.PAUSED)), (101.0, look(100, Phase.PAUSED))]
    ended = [(102.0, look(100, Phase.STOPPED))]
    assert due([*steady, *paused, *ended])[-2:] == [63.0, 100.0]


def test_what_it_waits_for_is_told_and_not_again() -> None:
    waiting = look(3, waiting_for="the node to start")
    looks = [(0.0, look(3)), (5.0, waiting), *((6.0 + now, waiting) for now in range(300))]
    assert due(looks) == [0.0, 5.0]
