"""Many schedules of one scenario: each is a simulated cluster of its own seed."""

from __future__ import annotations

import contextlib
import gc
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from anabranch.coordinator.driver.journal_reader import read_journal_view
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.protocol.sinks import Sink
from anabranch.runs import blobs
from anabranch.runs.run_file import forget_runs
from anabranch.sinks.callback import CallbackSink
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sinks.target import manifest_path, read_manifest
from anabranch.store.disk import use_disk
from anabranch.task.program import Program
from anabranch.task.state_reader import snapshot_of
from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.cluster.rule_broken import Broken, RuleBroken
from anabranch.testing.plane.plain_columns import typed_without_spark
from anabranch.testing.plane.plain_frames import Recorder
from anabranch.testing.plane.step_memo import StepMemo
from anabranch.testing.plane.tables import Known
from anabranch.testing.scenario import Outcome, Row, Scenario
from anabranch.testing.shop import shop

SHARED_MEMORY = Path("/dev/shm")


class Simulation(contextlib.AbstractContextManager["Simulation"]):
    """Runs schedules of a scenario, in a directory that is used again for each.

    A step that was computed in one schedule is not computed again in another, where its input, its
    placement and the content of its state are the same; with ``memo=False`` each is computed.
    """

    def __init__(self, scenario: Scenario | None = None, *, memo: bool = True) -> None:
        """Make the directory, in memory where there is a file system for that."""
        self.scenario = shop() if scenario is None else scenario
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self.root = Path(tempfile.mkdtemp(prefix="anabranch-simulation-", dir=parent))
        self.sinks = self.root / "sinks"
        flow = self.scenario.make(self.sinks)
        self.program = Program(typed_without_spark(flow), self.scenario.bins)
        self.memo = StepMemo(self.program) if memo else None
        self._known: Known | None = {} if memo else None

    def __exit__(self, *error: object) -> None:
        """Remove the directory."""
        self.close()

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.root, ignore_errors=True)

    def run(self, seed: int) -> SimulatedCluster:
        """Go through one schedule and check what came of it.

        Raises ``RuleBroken``, with the seed and the last actions.
        """
        cluster = self._fresh(seed)
        try:
            large = self.scenario.large_bytes
            with _without_collector(), _large_from(large), use_disk(cluster.disk):
                cluster.run()
                self.scenario.check(self.outcome(cluster))
        except (Exception, Broken) as error:
            story = "\n".join(cluster.story())
            text = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            raise RuleBroken(f"seed {seed}: {text}\n{story}\nseed {seed}: {text}") from error
        finally:
            forget_runs()
        return cluster

    def _fresh(self, seed: int) -> SimulatedCluster:
        root = self.root / "run"
        for directory in (root, self.sinks):
            shutil.rmtree(directory, ignore_errors=True)
        root.mkdir()
        for node in self.program.sinks.values():
            if isinstance(node.sink, MemorySink):
                node.sink.clear()
            elif isinstance(node.sink, CallbackSink) and isinstance(node.sink.function, Recorder):
                node.sink.function.clear()
        return SimulatedCluster(
            seed,
            self.program,
            root,
            memo=self.memo,
            known=self._known,
            live=self.scenario.live,
            workers=self.scenario.workers,
            sinks_away=self.scenario.sinks_away,
        )

    def outcome(self, cluster: SimulatedCluster) -> Outcome:
        """What the sinks have, and the state at the last commit."""
        view = read_journal_view(Journal(FileDirectory(cluster.store / "journal")))
        assert view.commit is not None
        snapshot = snapshot_of(
            view.step, view.clock_ns, self.program.bins, view.states, view.commit.placement
        )
        # Nobody has read these since their bytes were changed: follow the advice of the error.
        for name, data in cluster.copies.items():
            if (cluster.store / name).exists():
                (cluster.store / name).write_bytes(data)
        state = {
            each.operator: cluster.tables.read(snapshot, each).to_pylist() for each in view.states
        }
        output = {name: _published(node.sink) for name, node in self.program.sinks.items()}
        line = cluster.rules.ownership.line
        steps = tuple(line.read(view.step))
        return Outcome(output, state, steps, {step: line.positions(step) for step in steps})


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Let nobody look for cycles: a schedule is short and makes many objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _large_from(size: int | None) -> Iterator[None]:
    """Let values be kept in files of their own that are larger than this."""
    before = blobs.BLOB_BYTES
    blobs.BLOB_BYTES = before if size is None else size
    try:
        yield
    finally:
        blobs.BLOB_BYTES = before


def _published(sink: Sink) -> dict[int, list[Row]]:
    if isinstance(sink, MemorySink):
        return {
            step: [tuple(row.values()) for row in table.to_pylist()]
            for step, table in sink.steps().items()
        }
    if isinstance(sink, CallbackSink) and isinstance(sink.function, Recorder):
        return sink.function.steps()
    if isinstance(sink, FileSink) and sink.format != "parquet":
        return _json_rows(Path(sink.path))
    return {}


def _json_rows(target: Path) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for path in sorted(manifest_path(target, 0).parent.glob("step-*.json")):
        manifest = read_manifest(path)
        assert manifest is not None
        found[manifest.step] = [
            tuple(json.loads(line).values())
            for file in manifest.files
            for line in (target / file.name).read_text().splitlines()
        ]
    return found
