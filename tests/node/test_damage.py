"""Every kind of file of a pipeline, removed, truncated, or with one byte flipped.

A start goes on as if nothing had happened, or ends with one error that names the file. Then nothing
was changed, and with the file restored the pipeline goes on: nothing is lost.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.coordinator.operations import LoadCheckpoint
from anabranch.coordinator.settings import Settings
from anabranch.errors import (
    AnabranchError,
    CoordinatorUnreachable,
    CorruptEntry,
    NodeUnreachable,
    StoreError,
)
from anabranch.http.address import Address, read_address, write_address
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.node.address import NodeAddress, read_node_address, write_node_address
from anabranch.node.process import NodeCommand, NodeProcess, tell_failure
from anabranch.node.source_log import StoreLog
from anabranch.protocol.sinks import Retry
from anabranch.runs import blobs
from anabranch.sinks.file import FileSink
from anabranch.sources.ledger import read_segment, write_segment
from anabranch.spark import code as spark_code
from anabranch.store.lock import DirectoryLock
from anabranch.task.state_reader import read_snapshot, read_table
from tests.node.engine import Engine, Killed
from tests.node.shop import Page, Story, program, scripted, shop

# Whoever is killed here is a thread.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

PAGES: list[Page] = [
    [("ann", 3), ("bob", 5), ("ann", 4), ("zoe", 1)],
    [("cid", 1), ("ann", -7), ("bob", 2)],
    [("bob", 2), ("dee", 9), ("cid", 1), ("dee", 9)],
    [("a", 1), ("ann", 1)],
    [("b", 2), ("ann", 2)],
    [("c", 3), ("ann", 3)],
    [("d", 4), ("ann", 4)],
]


class Pipeline:
    """The shop below a directory, with the output of all its sinks in files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "state"
        once = Retry(timeout=0)
        rows, counts = (FileSink(root / name, "json", retry=once) for name in ("rows", "counts"))
        self.program = program(shop(scripted(PAGES), rows, counts))

    def engine(self, **more: Any) -> Engine:
        settings = Settings(workers=2, checkpoint_steps=2, keep_checkpoints=1)
        return Engine(self.program, self.state, settings=settings, **more)

    def run_some(self) -> int:
        """Run a few steps and shut down; give the last."""
        engine = self.engine(paced=True).start()
        engine.until(lambda status: status.step >= 2)
        return engine.shutdown().step

    def die(self, point: str, step: int, **more: Any) -> None:
        dead = threading.Event()

        def reached(found: str, at: int) -> None:
            if (found, at) == (point, step):
                dead.set()
            if dead.is_set():
                raise Killed(found)

        with pytest.raises(Killed):
            self.engine(reached=reached, **more).run()

    def check(self) -> None:
        """State and output are those of an undisturbed run: nothing twice, nothing missing."""
        story = Story(PAGES)
        assert self._published("rows") == {
            step: sorted((list(row) for row in rows), key=repr) for step, rows in story.rows.items()
        }
        assert self._published("counts") == {
            step: sorted([times, *row] for times, row in rows.items())
            for step, rows in story.counted.items()
        }
        snapshot = read_snapshot(self.state)
        seen = read_table(snapshot.view("seen"), self.state).to_pylist()
        states = {row["customer"]: msgspec.msgpack.decode(row["state"]) for row in seen}
        assert states == story.seen

    def _published(self, sink: str) -> dict[int, list[list[Any]]]:
        found: dict[int, list[list[Any]]] = {}
        for path in (self.root / sink).glob("step-*.json"):
            rows = [list(json.loads(line).values()) for line in path.read_text().splitlines()]
            found.setdefault(int(path.name.split("-")[1]), []).extend(rows)
        return {step: sorted(rows, key=repr) for step, rows in found.items()}


@pytest.fixture(scope="module", autouse=True)
def _small_blobs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "BLOB_BYTES", 8)
        yield


@dataclass(frozen=True)
class Templates:
    """Directories of pipelines that ended in different ways, to be copied and damaged."""

    #: committed a step, and did not publish it
    plain: Path
    #: published a step, and did not say so
    told: Path
    #: went back to a checkpoint, and made another step there
    branched: Path
    #: lost a run, replayed, and planned a step
    repaired: Path


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory, _small_blobs: None) -> Templates:
    made = tmp_path_factory.mktemp("templates")
    plain, told, branched, repaired = (
        Pipeline(made / name) for name in ("plain", "told", "branched", "repaired")
    )
    last = plain.run_some()
    shutil.copytree(plain.root, told.root)
    plain.die("committed", last + 1)
    told.die("published", last + 1)
    for other in (branched, repaired):
        shutil.copytree(plain.root, other.root)
    branched.die("committed", last + 1, rewind=LoadCheckpoint(last))

    newest(repaired.root, "state/run/seen/*.arrow").write_bytes(b"")
    repaired.die("planned", last + 2)
    leader = Leadership(FileDirectory(repaired.state / "journal"))
    leader.lead(False, "here", 1, 0)
    leader.journal.trim(2)
    leader.release()
    return Templates(plain.root, told.root, branched.root, repaired.root)


def newest(root: Path, pattern: str) -> Path:
    return sorted(path for path in root.glob(pattern) if path.is_file())[-1]


def oldest(root: Path, pattern: str) -> Path:
    return min(path for path in root.glob(pattern) if path.is_file())


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {"removed": remove, "truncated": truncate, "flipped": flip}

#: what is damaged: the template, which of the files, and the damages that a start goes on with
KINDS: dict[str, tuple[str, Callable[[Path, str], Path], str, tuple[str, ...]]] = {
    "identity": ("plain", newest, "state/journal/identity", ()),
    "leader": ("plain", newest, "state/journal/leader/[0-9]", tuple(DAMAGES)),
    "last plan": ("plain", newest, "state/journal/plan/0/*", tuple(DAMAGES)),
    "first plan": ("plain", oldest, "state/journal/plan/0/*", tuple(DAMAGES)),
    "last commit": ("plain", newest, "state/journal/commit/0/*", ("removed",)),
    "first commit": ("plain", oldest, "state/journal/commit/0/*", tuple(DAMAGES)),
    "checkpoint": ("plain", newest, "state/journal/checkpoint/0/*", tuple(DAMAGES)),
    "published": ("plain", newest, "state/journal/published/0/*", tuple(DAMAGES)),
    "run": ("plain", newest, "state/run/seen/*.arrow", tuple(DAMAGES)),
    "blob": ("plain", newest, "state/run/times/*.blob", tuple(DAMAGES)),
    "staged": ("plain", newest, "state/stage/rows/*", ()),
    "staged and published": ("plain", oldest, "state/stage/rows/*", tuple(DAMAGES)),
    "manifest": ("plain", newest, "rows/_manifest/step-*", tuple(DAMAGES)),
    "manifest of a step to publish again": ("told", newest, "rows/_manifest/step-*", ("removed",)),
    "owner": ("plain", newest, "rows/_manifest/owner.json", ("removed",)),
    "branch": ("branched", newest, "state/journal/branch/*", ()),
    "plan of a branch": ("branched", newest, "state/journal/plan/1/*", tuple(DAMAGES)),
    "commit of a branch": ("branched", newest, "state/journal/commit/1/*", ("removed",)),
    "plan without a commit": ("repaired", newest, "state/journal/plan/0/*", ("removed",)),
    "repair": ("repaired", newest, "state/journal/repair/0/*", ("removed",)),
    "segment": ("repaired", newest, "state/journal/segment/0/*", tuple(DAMAGES)),
}


def contents(root: Path) -> dict[str, bytes]:
    """All files, but for who has led there."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "leader" not in path.parts
    }


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_start_goes_on_or_says_which_file_is_damaged(
    templates: Templates, tmp_path: Path, kind: str, damage: str
) -> None:
    template, choose, pattern, harmless = KINDS[kind]
    pipeline = Pipeline(tmp_path / "copy")
    shutil.copytree(getattr(templates, template), pipeline.root)
    path = choose(pipeline.root, pattern)
    whole = path.read_bytes()
    DAMAGES[damage](path)
    before = contents(pipeline.root)
    if damage in harmless:
        pipeline.engine().run()
    else:
        with pytest.raises(AnabranchError) as raised:
            pipeline.engine().run()
        assert str(path) in str(raised.value)
        # Other sinks may have gone on; what was there is as it was.
        assert before.items() <= contents(pipeline.root).items()
        path.write_bytes(whole)
        pipeline.engine().run()
    pipeline.check()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_code_is_not_run_and_written_again(tmp_path: Path, damage: str) -> None:
    made = Pipeline(tmp_path / "shop").program
    code = spark_code.save_program(tmp_path, made)
    spark_code._loaded.clear()
    DAMAGES[damage](tmp_path / "code" / code)
    with pytest.raises(CorruptEntry, match=code):
        spark_code.load_program(tmp_path, code)
    assert spark_code.save_program(tmp_path, made) == code
    spark_code._loaded.clear()
    spark_code.load_program(tmp_path, code)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_of_a_source_is_told(tmp_path: Path, damage: str) -> None:
    log = StoreLog(tmp_path)
    segment = write_segment(["in/a", "in/b"], log, "seen")
    DAMAGES[damage](tmp_path / "log" / segment.name)
    with pytest.raises(StoreError, match=segment.name):
        read_segment(segment, log)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_lock_is_a_lock(tmp_path: Path, damage: str) -> None:
    lock = DirectoryLock(tmp_path, "node.lock")
    lock.acquire()
    lock.release()
    DAMAGES[damage](tmp_path / "node.lock")
    again = DirectoryLock(tmp_path, "node.lock")
    again.acquire()
    again.release()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_address_is_none(tmp_path: Path, damage: str) -> None:
    write_node_address(tmp_path, NodeAddress("127.0.0.1", 1, 1, "boot", "secret"))
    write_address(tmp_path, Address("http://127.0.0.1:1", 1, 1, "token"))
    for path in (tmp_path / "node.json", tmp_path / "coordinator.json"):
        if damage == "flipped":
            # In a value it would be an address at which nobody answers.
            path.write_bytes(path.read_bytes().replace(b'":"', b'";"', 1))
        else:
            DAMAGES[damage](path)
    assert read_node_address(tmp_path) is None
    with pytest.raises(CoordinatorUnreachable):
        read_address(tmp_path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_word_of_a_failed_start_the_log_is_pointed_at(tmp_path: Path, damage: str) -> None:
    tell_failure(tmp_path, ValueError("no"))
    DAMAGES[damage](path := tmp_path / "node-failed.json")
    if damage == "flipped":
        path.write_bytes(path.read_bytes().replace(b":", b";"))
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    error = NodeProcess(NodeCommand("flow.py", tmp_path, 8), 1.0)._not_started(child)
    assert isinstance(error, NodeUnreachable)
    assert error.where == str(tmp_path / "node.log")
