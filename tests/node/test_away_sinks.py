"""Sinks that are away when a node opens, and staged files that no sink could publish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch.errors import BuildError, JvmDied, StoreUnavailable, TargetTaken
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.protocol.node import Closed, CloseOrder, Open
from anabranch.protocol.sinks import Publisher, Retry, SinkContext
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sinks.target import take_back
from tests.node.core_shop import CoreShop


@dataclass
class Doors:
    """Which sinks cannot be opened, and how often each was tried."""

    shut: dict[str, Exception] = field(default_factory=dict)
    tries: list[str] = field(default_factory=list)

    def knock(self, sink: str) -> None:
        self.tries.append(sink)
        if sink in self.shut:
            raise self.shut[sink]


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> Doors:
    made = Doors()

    def behind_door(
        opening: Callable[[FileSink | MemorySink, SinkContext], Publisher],
    ) -> Callable[[FileSink | MemorySink, SinkContext], Publisher]:
        def opened(self: FileSink | MemorySink, context: SinkContext) -> Publisher:
            made.knock(context.sink)
            return opening(self, context)

        return opened

    for kind in (FileSink, MemorySink):
        monkeypatch.setattr(kind, "open", behind_door(kind.open))  # type: ignore[arg-type]
    return made


@pytest.fixture
def shop(tmp_path: Path) -> CoreShop:
    return CoreShop(tmp_path)


def finish(shop: CoreShop) -> None:
    """Let everything happen that can, however long a sink is left alone for."""
    while not (shop.report.offer is not None and shop.report.offer.ended):
        shop.one_step()
    for _ in range(20):
        shop.now += Retry().maximum
        shop.publish_all()


def test_a_sink_that_is_away_when_a_node_opens_stops_neither_steps_nor_other_sinks(
    shop: CoreShop, doors: Doors
) -> None:
    doors.shut["rows"] = ConnectionError("the database restarts")
    report = shop.open()
    assert (report.state, report.failed_open) == (Open(0), None)
    while shop.one_step():
        pass
    shop.publish_all()
    assert shop.report.published == {"rows": 0, "counts": 4}
    told = shop.report.sink_retries
    assert list(told) == ["rows"]
    assert told["rows"].failure.code == "sink.unavailable"
    assert "'rows'" in told["rows"].failure.what
    assert "ConnectionError: the database restarts" in told["rows"].failure.what
    assert shop.report.sink_failure is None
    doors.shut.clear()
    finish(shop)
    assert shop.report.sink_retries == {}
    assert shop.report.published == {"rows": 4, "counts": 4}
    shop.check()


def test_it_is_opened_again_after_ever_longer_pauses_also_if_nothing_waits_for_it(
    shop: CoreShop, doors: Doors
) -> None:
    doors.shut["rows"] = OSError("no route to host")
    shop.open()
    doors.tries.clear()
    pauses = []
    for _ in range(4):
        pause = shop.core.publish_pause("rows")
        assert pause is not None
        pauses.append(pause)
        assert not shop.core.publish_next("rows"), "it is not the time yet"
        shop.now += pause
        assert shop.core.publish_next("rows")
    first = Retry().initial
    assert pauses == pytest.approx([first, 2 * first, 4 * first, 8 * first])
    assert doors.tries == ["rows"] * 4, "the others are open"
    assert shop.report.sink_retries["rows"].tries == 5
    doors.shut.clear()
    shop.now += 1.0 + 16 * first
    assert shop.core.publish_next("rows")
    assert shop.core.publish_pause("rows") is None
    assert shop.report.sink_retries == {}


def test_it_is_given_up_when_its_time_is_over(shop: CoreShop, doors: Doors) -> None:
    doors.shut["rows"] = StoreUnavailable("The disk is not mounted")
    shop.open()
    shop.one_step()
    began = shop.now
    while shop.report.sink_failure is None:
        shop.now += shop.core.publish_pause("rows") or 0.0
        shop.publish_all()
    assert shop.now - began == pytest.approx(600.0)
    assert shop.report.sink_failure.code == "store.unavailable", "an error of ours stays as it is"
    assert not shop.core.publish_next("rows")
    assert shop.report.published == {"rows": 0, "counts": 1}


def test_a_pipeline_closes_without_a_sink_that_is_away(shop: CoreShop, doors: Doors) -> None:
    doors.shut["rows"] = OSError("away")
    shop.open()
    shop.one_step()
    shop.publish_all()
    shop.give(CloseOrder())
    assert shop.core.close_pending()
    assert shop.report.state == Closed()
    doors.shut.clear()
    shop.open()
    finish(shop)
    shop.check()


@pytest.mark.parametrize(
    "error", [TargetTaken("another pipeline's"), BuildError("Spark cannot write this")]
)
def test_what_no_retry_can_mend_fails_the_opening(
    shop: CoreShop, doors: Doors, error: Exception
) -> None:
    doors.shut["rows"] = error
    report = shop.open()
    assert report.state == Closed()
    assert report.failed_open is not None
    assert report.failed_open.code == getattr(error, "code", None)


def test_what_no_retry_can_mend_gives_a_sink_up_that_was_away(shop: CoreShop, doors: Doors) -> None:
    doors.shut["rows"] = OSError("away")
    shop.open()
    doors.shut["rows"] = TargetTaken("another pipeline's")
    shop.now += 1.0
    assert shop.core.publish_next("rows")
    assert shop.report.sink_failure is not None
    assert shop.report.sink_failure.code == "sink.target_taken"


def test_a_sink_that_is_not_to_be_retried_fails_the_opening(tmp_path: Path, doors: Doors) -> None:
    doors.shut["rows"] = OSError("away")
    shop = CoreShop(tmp_path, sink=MemorySink(retry=Retry(timeout=0)))
    report = shop.open()
    assert report.failed_open is not None
    assert report.failed_open.code == "sink.unavailable"


def test_a_dead_data_plane_is_to_blame_and_not_the_sink(
    shop: CoreShop, doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors.shut["rows"] = OSError("no answer from the JVM")

    def dead() -> None:
        raise JvmDied("Spark is dead")

    monkeypatch.setattr(type(shop.plane), "check_alive", lambda self: dead(), raising=False)
    with pytest.raises(JvmDied):
        shop.open()


def test_a_node_that_is_not_led_opens_no_sink(shop: CoreShop, doors: Doors) -> None:
    doors.shut["rows"] = OSError("away")
    Leadership(FileDirectory(shop.store / "journal")).lead(False, "first", 1, 0)
    shop.open()
    Leadership(FileDirectory(shop.store / "journal")).lead(True, "second", 1, 0)
    doors.shut.clear()
    doors.tries.clear()
    shop.now += 1.0
    assert not shop.core.publish_next("rows")
    assert doors.tries == []


def rewound(shop: CoreShop) -> None:
    """Publish four steps, and go back to the second one."""
    shop.open()
    shop.run_all()
    shop.journal = shop.journal[:2]


def test_a_rewind_is_told_which_sinks_have_yet_to_take_back(shop: CoreShop, doors: Doors) -> None:
    rewound(shop)
    doors.shut["rows"] = OSError("away")
    positions = shop.journal[-1].positions
    report = shop.open(rewound=2, positions=positions, outputs=(), published={"rows": 4})
    assert (report.state, report.failed_open) == (Open(2), None)
    assert report.taking_back == ("rows",)
    assert report.published == {"rows": 2, "counts": 2}
    assert list(shop.rows.steps()) == [1, 2, 3, 4]
    doors.shut.clear()
    shop.now += 1.0
    assert shop.core.publish_next("rows")
    assert shop.report.taking_back == ()
    assert list(shop.rows.steps()) == [1, 2]
    finish(shop)
    shop.check()


def test_taking_back_is_tried_again_like_opening(
    shop: CoreShop, doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewound(shop)
    failures = [OSError("the disk is busy")] * 2

    def sometimes(target: Path, step: int) -> None:
        if failures:
            raise failures.pop()
        take_back(target, step)

    monkeypatch.setattr("anabranch.sinks.file.take_back", sometimes)
    positions = shop.journal[-1].positions
    report = shop.open(rewound=2, positions=positions, outputs=(), published={"rows": 4})
    assert report.taking_back == ("counts",)
    assert report.sink_retries["counts"].failure.code == "sink.unavailable"
    assert list((tmp_path / "counts").glob("step-000000000003*"))
    for _ in range(2):
        shop.now += 1.0
        assert shop.core.publish_next("counts")
    assert shop.report.taking_back == ()
    assert doors.tries.count("counts") == 2, "what is open is not opened again"
    assert not list((tmp_path / "counts").glob("step-000000000003*"))


def damage(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("harm", [Path.unlink, damage])
def test_a_damaged_staged_file_fails_at_once_and_other_sinks_go_on(
    shop: CoreShop, harm: Callable[[Path], None]
) -> None:
    """The sink is not to blame, and no retry brings the file back."""
    shop.open()
    for _ in range(2):
        shop.one_step()
    staged = [f for f in shop.journal[0].result.staged if f.sink == "rows"]
    harm(shop.store / staged[0].name)
    shop.publish_all()
    failure = shop.report.sink_failure
    assert failure is not None
    assert failure.code == "store.corrupt_staged"
    assert failure.where == str(shop.store / staged[0].name)
    assert shop.report.published == {"rows": 0, "counts": 2}
    assert shop.report.sink_retries["rows"].next_seconds is None
