"""The little coordinator refuses in the words of the real one."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.coordinator.effects import Answer
from anabranch.coordinator.events import Asked
from anabranch.coordinator.operations import LoadCheckpoint, Operation, TakeCheckpoint
from anabranch.protocol.node import SinkInfo
from anabranch.protocol.status import CheckpointStatus
from tests.coordinator import bench as benches
from tests.coordinator.bench import Bench, checkpoint, journal
from tests.http.little import Little


@pytest.mark.parametrize(
    ("step", "kept", "operation"),
    [
        (7, 5, LoadCheckpoint(4)),
        (7, None, LoadCheckpoint(4)),
        (7, 5, LoadCheckpoint(5)),
        (0, None, TakeCheckpoint()),
    ],
)
def test_refusals_are_those_of_the_real_one(
    monkeypatch: pytest.MonkeyPatch, step: int, kept: int | None, operation: Operation
) -> None:
    one_way = SinkInfo("out", "parquet", takes_back=False)
    info = msgspec.structs.replace(benches.FACTS, sinks=(one_way,))
    monkeypatch.setattr(benches, "FACTS", info)
    bench = Bench()
    bench.open(journal(step, checkpoints=() if kept is None else (checkpoint(kept),)))
    (answer,) = bench.send(Asked(1, operation))
    assert isinstance(answer, Answer)
    listed = [] if kept is None else [CheckpointStatus(kept, 0, 0, 1, 1, 0.0)]
    little = Little(step=step, checkpoints=listed)
    assert little.ask(operation, 0).failure == answer.failure
    assert answer.failure is not None
