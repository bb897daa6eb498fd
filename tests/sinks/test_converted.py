"""Files that Spark writes: each step once, of one attempt, whatever happens in between."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import CorruptStaged, PublishFailed, StoreUnavailable
from anabranch.protocol.sinks import Publisher, SinkContext, StagedStep, TakingBack
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.converted import ConvertedPublisher
from anabranch.sinks.file import FileSink
from anabranch.sinks.staging import RowsToStage, stage
from anabranch.sinks.target import manifest_path, read_manifest
from tests.sinks.plain_frames import PlainFrames

SCHEMA = pa.schema({"day": pa.string(), "n": pa.int64()})
ROWS = [{"day": "mon", "n": 1}, {"day": "tue", "n": 2}, {"day": "mon", "n": 3}]
WHOLE = Counter([("mon", 1), ("tue", 2), ("mon", 3)])


class Sink:
    """A sink in a directory of its own, to be opened again and again."""

    def __init__(self, root: Path, partition_by: str | tuple[str, ...] = ()) -> None:
        self.store = root / "store"
        self.out = root / "out"
        self.store.mkdir(parents=True)
        self.sink = FileSink(self.out, "csv", partition_by=partition_by)
        self.partitioned = bool(partition_by)
        self.frames = PlainFrames()
        self.points: list[tuple[str, int]] = []

    def open(self) -> Publisher:
        def reached(point: str, step: int) -> None:
            self.points.append((point, step))

        context = SinkContext(self.store, "p", "totals", SCHEMA, self.frames, reached)
        return self.sink.open(context)

    def staged(self, name: str = "x", rows: list[dict[str, Any]] = ROWS) -> list[StagedFile]:
        tables = [pa.Table.from_pylist([row], schema=SCHEMA) for row in rows]
        made = [
            RowsToStage(f"stage/{name}-{k}", "totals", self.sink, t) for k, t in enumerate(tables)
        ]
        return list(stage(self.store, made))

    def seen(self) -> Counter[tuple[str, int]]:
        """What a reader that skips hidden names, as Spark does, finds."""
        found: Counter[tuple[str, int]] = Counter()
        for path in self.out.rglob("*"):
            parts = path.relative_to(self.out).parts
            if path.is_dir() or any(part[0] in "_." for part in parts):
                continue
            assert path.name.startswith("step-000000000007-")
            assert path.suffix == ".csv"
            for line in path.read_text().splitlines():
                *day, n = [*(part.partition("=")[2] for part in parts[:-1]), *line.split(",")]
                found[day[0], int(n)] += 1
        return found

    def left(self) -> list[str]:
        return os.listdir(self.out / "_publishing")


@pytest.fixture(params=[(), "day"], ids=["flat", "partitioned"])
def sink(tmp_path: Path, request: pytest.FixtureRequest) -> Sink:
    return Sink(tmp_path, request.param)


def test_a_step_is_put_in_place_and_told(sink: Sink) -> None:
    sink.open().publish(StagedStep(0, 7, tuple(sink.staged())))
    assert sink.seen() == WHOLE
    manifest = read_manifest(manifest_path(sink.out, 7))
    assert manifest is not None
    assert manifest.rows == 3
    assert {sink.out / file.name for file in manifest.files} == {
        path for path in sink.out.rglob("step-*.csv")
    }
    points = ("written", "decided", "placed", "told")
    assert sink.points == [(f"{point} totals", 7) for point in points]
    assert sink.left() == []


def test_a_step_that_is_told_is_done_also_without_its_files(sink: Sink) -> None:
    files = sink.staged()
    sink.open().publish(StagedStep(0, 7, tuple(files)))
    for path in sink.out.rglob("step-*.csv"):
        path.unlink()
    sink.open().publish(StagedStep(0, 7, tuple(files)))
    assert sink.seen() == Counter()
    assert sink.frames.written == 1


def test_a_later_step_is_taken_back_with_what_was_decided_for_it(sink: Sink) -> None:
    publisher = sink.open()
    assert isinstance(publisher, TakingBack)
    publisher.publish(StagedStep(0, 7, tuple(sink.staged())))
    (sink.out / "_publishing" / "step-000000000008").mkdir()
    publisher.take_back(7)
    assert sink.seen() == WHOLE
    assert sink.left() == []
    for _ in range(2):
        publisher.take_back(6)
        assert not sink.seen()
        assert os.listdir(sink.out / "_manifest") == ["owner.json"]
    publisher.publish(StagedStep(0, 7, tuple(sink.staged("another", ROWS[:1]))))
    assert sink.seen() == Counter([("mon", 1)])


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """The system calls of a process that is killed before its nth one: none works from then on."""

    CALLS = ("open", "write", "fsync", "link", "unlink", "rename", "mkdir", "rmdir")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lives: int) -> None:
        self.lives = lives
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self.counting(getattr(os, name)))

    def counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: object, **named: object) -> object:
            self.lives -= 1
            if self.lives < 0:
                raise Killed
            return call(*arguments, **named)

        return counted


def publish_mortally(publisher: Publisher, files: list[StagedFile], lives: int) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        Mortal(patch, lives)
        try:
            publisher.publish(StagedStep(0, 7, tuple(files)))
        except Killed:
            return False
        return True


@pytest.mark.parametrize("partition_by", [(), "day"], ids=["flat", "partitioned"])
def test_r6_a_kill_at_any_system_call_and_a_repetition_give_the_step_once(
    tmp_path: Path, partition_by: str
) -> None:
    finished = False
    lives = 0
    while not finished:
        sink = Sink(tmp_path / str(lives), partition_by)
        files = sink.staged()
        finished = publish_mortally(sink.open(), files, lives)
        # What can be seen are rows of the step, none twice; a manifest stands for all of them.
        assert sink.seen() <= WHOLE
        if manifest_path(sink.out, 7).exists():
            assert sink.seen() == WHOLE
        # Killed again at a second place, then left in peace.
        publish_mortally(sink.open(), files, lives // 2)
        assert sink.seen() <= WHOLE
        sink.open().publish(StagedStep(0, 7, tuple(files)))
        assert sink.seen() == WHOLE
        assert sink.left() == []
        lives += 1
    assert lives > 20


def test_a_job_that_fails_leaves_nothing_to_be_seen_and_is_done_again(sink: Sink) -> None:
    files = sink.staged()
    publisher = sink.open()
    sink.frames.failures = 1
    with pytest.raises(PublishFailed, match="the job failed"):
        publisher.publish(StagedStep(0, 7, tuple(files)))
    assert sink.seen() == Counter()
    assert sink.left() == []
    publisher.publish(StagedStep(0, 7, tuple(files)))
    assert sink.seen() == WHOLE


def test_what_killed_attempts_left_is_cleared_at_the_next_start(sink: Sink) -> None:
    publisher = sink.open()
    (sink.out / "_publishing" / ".dead" / "day=mon").mkdir(parents=True)
    (sink.out / "_publishing" / ".dead" / "part-0.csv").write_text("mon,1")
    publisher.publish(StagedStep(0, 7, tuple(sink.staged())))
    assert sink.left() == [".dead"]
    sink.open()
    assert sink.left() == []
    assert sink.seen() == WHOLE


def test_a_step_published_by_another_history_is_told(sink: Sink) -> None:
    publisher = sink.open()
    publisher.publish(StagedStep(0, 7, tuple(sink.staged("x"))))
    with pytest.raises(PublishFailed, match="set back to an older copy"):
        publisher.publish(StagedStep(0, 7, tuple(sink.staged("y"))))
    assert sink.seen() == WHOLE


def decided(sink: Sink) -> tuple[Publisher, list[StagedFile]]:
    """A publisher that was killed after the decision."""
    publisher, files = sink.open(), sink.staged()

    def full(*_: object) -> None:
        raise Killed

    assert isinstance(publisher, ConvertedPublisher)
    dying = ConvertedPublisher(
        publisher.target, publisher.form, publisher.frames, publisher.context, full
    )
    with pytest.raises(Killed):
        dying.publish(StagedStep(0, 7, tuple(files)))
    assert sink.left() == ["step-000000000007"]
    return sink.open(), files


def test_the_decided_attempt_is_put_in_place_and_no_other_is_made(sink: Sink) -> None:
    publisher, files = decided(sink)
    publisher.publish(StagedStep(0, 7, tuple(files)))
    assert sink.frames.written == 1
    assert sink.seen() == WHOLE


def test_another_history_after_the_decision_is_told(sink: Sink) -> None:
    publisher, _ = decided(sink)
    with pytest.raises(PublishFailed, match="set back to an older copy"):
        publisher.publish(StagedStep(0, 7, tuple(sink.staged("y"))))
    assert sink.seen() == Counter()


@pytest.mark.parametrize("torn", ["part-*.csv", "_manifest.json"])
def test_a_decided_attempt_that_somebody_damaged_is_told(sink: Sink, torn: str) -> None:
    publisher, files = decided(sink)
    for path in (sink.out / "_publishing").rglob(torn):
        path.unlink()
    with pytest.raises(PublishFailed, match="partly published"):
        publisher.publish(StagedStep(0, 7, tuple(files)))
    assert sink.seen() == Counter()


def test_a_strangers_file_is_never_overwritten(sink: Sink) -> None:
    publisher, files = decided(sink)
    manifest = read_manifest(sink.out / "_publishing" / "step-000000000007" / "_manifest.json")
    assert manifest is not None
    stranger = sink.out / manifest.files[0].name
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_bytes(b"precious")
    with pytest.raises(PublishFailed, match="taken by a file"):
        publisher.publish(StagedStep(0, 7, tuple(files)))
    assert stranger.read_bytes() == b"precious"
    stranger.unlink()
    publisher.publish(StagedStep(0, 7, tuple(files)))
    assert sink.seen() == WHOLE


def test_a_damaged_staged_file_is_not_converted(sink: Sink) -> None:
    files = sink.staged()
    (sink.store / files[1].name).write_bytes(b"x")
    with pytest.raises(CorruptStaged, match="'totals'"):
        sink.open().publish(StagedStep(0, 7, tuple(files)))
    assert sink.frames.written == 0


def test_rows_with_other_columns_than_the_sink_has_now_are_not_converted(sink: Sink) -> None:
    files = sink.staged()
    context = SinkContext(sink.store, "p", "totals", pa.schema({"n": pa.int64()}), sink.frames)
    with pytest.raises(PublishFailed, match="columns day, n; now the sink has n"):
        FileSink(sink.out, "csv").open(context).publish(StagedStep(0, 7, tuple(files)))
    assert sink.frames.written == 0


def test_a_vanished_target_is_unavailable_and_is_not_made_again(sink: Sink) -> None:
    publisher = sink.open()
    sink.out.rename(sink.out.with_name("moved"))
    with pytest.raises(StoreUnavailable, match="'totals' is gone"):
        publisher.publish(StagedStep(0, 7, tuple(sink.staged())))
    assert not sink.out.exists()


@pytest.mark.parametrize(
    ("form", "partition_by", "refused"),
    [
        ("csv", ("none",), "'none', which is not a column"),
        ("csv", ("tags",), "cannot be a directory"),
        ("csv", (".hidden",), "overlooks directories"),
        ("csv", ("day", "Day"), "twice"),
        ("csv", ("day", "tags", ".hidden"), "leaves no column"),
        ("csv", ("day",), "'tags' has type .*, which CSV cannot hold"),
        ("text", ("day",), "one column"),
        ("text", (".hidden",), "'tags' has type .*, and text files hold strings"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(
    form: str, partition_by: tuple[str, ...], refused: str
) -> None:
    schema = pa.schema({"day": pa.string(), "tags": pa.list_(pa.int32()), ".hidden": pa.int32()})
    told = FileSink("out", form, partition_by=partition_by).refuses(schema)
    assert told is not None
    assert re.search(refused, told)


def test_columns_that_can_be_written_are_not_refused() -> None:
    schema = pa.schema({"day": pa.date32(), "line": pa.string()})
    for form in ("csv", "orc", "json", "text", "xml"):
        assert FileSink("out", form, partition_by="DAY").refuses(schema) is None
