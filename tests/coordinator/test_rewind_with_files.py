"""A start that goes back to a checkpoint, with journal, node and files as they are on a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.coordinator.operations import LoadCheckpoint
from anabranch.coordinator.settings import Settings
from anabranch.errors import FileGone
from anabranch.protocol.status import Phase
from anabranch.sinks.memory import MemorySink
from anabranch.sources.files import FileSource
from anabranch.task.program import Program
from tests.node.engine import Engine, Killed
from tests.node.shop import SCHEMA, program, shop

# Whoever is killed here is a thread.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def reading(files: Path) -> Program:
    """A shop whose steps take one file each; the plane of these tests reads no row of it."""
    source = FileSource(files, format="json", schema=SCHEMA, max_files_per_step=1)
    return program(shop(source, MemorySink(), MemorySink()))


def put(files: Path, name: str) -> Path:
    path = files / name
    path.write_text('{"customer": "ann", "amount": 1}\n')
    return path


def test_a_start_goes_back_although_the_plan_that_was_left_can_never_run(
    tmp_path: Path, files: Path
) -> None:
    def engine(**more: Any) -> Engine:
        return Engine(reading(files), tmp_path / "state", settings=Settings(), **more)

    def dies(point: str, step: int) -> None:
        if (point, step) == ("planned", 2):
            raise Killed(point)

    put(files, "1.json")
    first = engine().start()
    first.until(lambda status: status.step == 1)
    assert first.shutdown().checkpoints[-1].step == 1
    lost = put(files, "2.json")
    with pytest.raises(Killed):
        engine(reached=dies).run()
    lost.unlink()
    with pytest.raises(FileGone):
        engine().run()

    back = engine(rewind=LoadCheckpoint(1)).start()
    put(files, "3.json")
    status = back.until(lambda status: status.step == 2 or status.phase is Phase.FAILED)
    assert (status.failure, status.branch, status.step) == (None, 1, 2)
    back.shutdown()
