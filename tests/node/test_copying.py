"""A checkpoint is copied while its pipeline runs on; the copy is the pipeline at that step."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from anabranch.cli.state import state
from anabranch.coordinator.driver.checkpoint_copy import CheckpointCopy, copy_checkpoint
from anabranch.coordinator.effects import StepDone
from anabranch.dataflow.flow import Dataflow
from anabranch.errors import CorruptRun, NameTaken, NoPipeline, SnapshotExpired
from anabranch.protocol.status import Phase
from anabranch.records.plan import Plan
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource
from anabranch.task.program import Program
from anabranch.task.state_reader import read_snapshot, read_table
from tests.node.engine import Engine
from tests.node.shop import program

WAIT = 60.0
KEYS = 10_000
PAGES = [
    [(key, 1) for key in range(KEYS)],
    [(key, 10) for key in range(0, KEYS, 1000)],
    [(key, 100) for key in range(0, KEYS, 2000)],
]


def source() -> ScriptedSource:
    return ScriptedSource("key bigint, amount bigint", [*PAGES, EOF])


def sums(out: MemorySink) -> Program:
    flow = Dataflow("sums")
    keyed = flow.source("rows", source()).key_distribute("by-key", "key")
    keyed.aggregate("sums", total="sum(amount)").sink("out", out)
    return program(flow)


def totals(steps: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for page in PAGES[:steps]:
        for key, amount in page:
            found[key] = found.get(key, 0) + amount
    return found


def kept(directory: Path, step: int | None = None) -> dict[int, int]:
    table: pa.Table = read_table(read_snapshot(directory, step).view("sums"), directory)
    return dict(zip(*(column.to_pylist() for column in table.columns), strict=True))


class Halfway:
    """A pipeline that has kept step 2 and waits in step 3."""

    def __init__(self, directory: Path) -> None:
        self._go_on = threading.Event()
        second = threading.Event()

        def wait(plan: Plan) -> None:
            if plan.step == 3:
                assert self._go_on.wait(WAIT)

        def seen(done: StepDone) -> None:
            if done.step == 2:
                second.set()

        self.directory = directory
        self.pipeline = (
            Engine(sums(MemorySink()), directory, plane_before=wait, watch=seen).start().pipeline
        )
        assert second.wait(WAIT)
        assert [kept.step for kept in self.pipeline.checkpoint().checkpoints] == [2]

    def go_on(self) -> None:
        self._go_on.set()
        status = self.pipeline.wait(WAIT)
        assert (status.phase, status.step) == (Phase.COMPLETED, 3)


def copied(directory: Path, target: Path, step: int | None = None) -> CheckpointCopy:
    return copy_checkpoint(directory, "sums", step, target)


def test_a_copy_opens_to_equal_state_while_the_original_runs_on(tmp_path: Path) -> None:
    original = Halfway(tmp_path / "original")
    copy = tmp_path / "copy"
    done = copied(original.directory, copy)
    files = [path for path in copy.rglob("*") if path.is_file()]
    assert (done.step, done.files) == (2, len(files))
    assert done.bytes == sum(path.stat().st_size for path in files)
    original.go_on()
    assert kept(copy) == totals(2)
    assert kept(original.directory) == totals(3)
    # Not only state: the copy goes on, and publishes what comes after it.
    out = MemorySink()
    steps = Engine(sums(out), copy).run()
    assert [step.step for step in steps] == [3]
    assert kept(copy) == totals(3)
    assert list(out.steps()) == [3]
    assert sorted(tuple(row.values()) for row in out.rows()) == [
        (key, total) for key, total in sorted(totals(3).items()) if total > 100
    ]


def test_what_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    original = Halfway(tmp_path / "original")
    with pytest.raises(SnapshotExpired, match=r"Step 1 is not a kept checkpoint.* 2\."):
        copied(original.directory, tmp_path / "copy", 1)
    with pytest.raises(NoPipeline):
        copied(tmp_path, tmp_path / "copy")
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").touch()
    with pytest.raises(NameTaken, match="not empty"):
        copied(original.directory, full)
    copied(original.directory, tmp_path / "whole")
    named = next((tmp_path / "whole" / "run" / "sums").iterdir()).name
    run = original.directory / "run" / "sums" / named
    original.go_on()
    data = bytearray(run.read_bytes())
    data[len(data) // 2] ^= 1
    run.write_bytes(data)
    with pytest.raises(CorruptRun):
        copied(original.directory, tmp_path / "damaged", 2)
    assert not (tmp_path / "damaged" / "journal").exists()
    run.unlink()
    with pytest.raises(SnapshotExpired, match="Step 2 was dropped"):
        copied(original.directory, tmp_path / "gone", 2)


def test_the_shell_copies_too(tmp_path: Path) -> None:
    original = Halfway(tmp_path / "original")
    original.go_on()
    (tmp_path / "copied_sums.py").write_text(
        "import anabranch as ab\n"
        "flow = ab.Dataflow('sums')\n"
        "rows = ab.ScriptedSource('key bigint, amount bigint', [[(1, 1)]])\n"
        "flow.source('rows', rows).sink('out', ab.MemorySink())\n"
    )
    ran = CliRunner().invoke(
        state,
        [
            "copy",
            f"{tmp_path / 'copied_sums.py'}:flow",
            str(tmp_path / "copy"),
            *("--directory", str(original.directory), "--step", "2", "--json"),
        ],
        catch_exceptions=False,
    )
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["step"] == 2
    assert kept(tmp_path / "copy") == totals(2)
