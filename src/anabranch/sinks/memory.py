"""The memory sink: published rows as Python values, for tests."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.errors import TargetTaken
from anabranch.protocol.sinks import Retry, SinkContext, StagedStep, as_retry
from anabranch.sinks.staging import read_staged


@dataclass(slots=True)
class _Published:
    """What one sink has published in this process."""

    owner: tuple[str, str] | None = None
    #: by branch and step the files, as they were staged
    steps: dict[tuple[int, int], tuple[bytes, ...]] = field(default_factory=dict)


# By the id of the sink, because a dataflow travels pickled: every copy of a sink must lead to the
# same rows. Guarded by the lock; publishers may run in threads.
_registry: dict[str, _Published] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class MemorySink:
    """Keeps published rows in the process that publishes, each step once.

    They outlive the pipeline, so that a test can stop and restart it, and are gone with the
    process. ``clear`` makes the sink as new.
    """

    #: staged rows are Arrow IPC streams
    stage_format: ClassVar[str] = "arrow"
    takes_back: ClassVar[bool] = True

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    retry: Retry = field(default=Retry(), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse a retry that is none."""
        as_retry(self.retry, "MemorySink")

    def refuses(self, schema: pa.Schema) -> str | None:
        """Refuse nothing: Arrow holds every type."""
        return None

    def encode(self, table: pa.Table) -> pa.Buffer:
        """Give the rows as an Arrow IPC stream."""
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return out.getvalue()

    def open(self, context: SinkContext) -> MemoryPublisher:
        """Give a publisher into this process; refuse a second pipeline or sink operator."""
        owner = (context.pipeline, context.sink)
        with _lock:
            published = _registry.setdefault(self.id, _Published())
            if published.owner not in (None, owner):
                raise TargetTaken(
                    f"The MemorySink of sink {context.sink!r} holds the output of another "
                    "pipeline or sink",
                    do="Use a MemorySink for each, or clear() it.",
                )
            published.owner = owner
        return MemoryPublisher(self, context)

    def steps(self) -> dict[int, pa.Table]:
        """Give what every step published, by step, in step order."""
        with _lock:
            published = _registry.get(self.id)
            found = sorted(published.steps.items()) if published else []
        # Of a step that was committed again, in another branch, that is what counts.
        latest = {step: files for (_, step), files in found}
        return {step: pa.concat_tables(map(_decoded, latest[step])) for step in sorted(latest)}

    def has(self, step: int) -> bool:
        """Whether a step was published."""
        with _lock:
            published = _registry.get(self.id)
            return published is not None and any(step == has for _, has in published.steps)

    def rows(self) -> list[dict[str, Any]]:
        """Give all published rows, in step order."""
        tables = self.steps().values()
        return [row for table in tables for row in table.to_pylist(maps_as_pydicts="strict")]

    def clear(self) -> None:
        """Forget everything, also whose output it was."""
        with _lock:
            _registry.pop(self.id, None)


@dataclass(frozen=True, slots=True)
class MemoryPublisher:
    """Adds committed steps to the rows of a memory sink."""

    sink: MemorySink
    context: SinkContext

    def publish(self, staged: StagedStep) -> None:
        """Keep a step's rows unless they are kept already; nothing of it if one file is bad."""
        name = (staged.branch, staged.step)
        with _lock:
            if name in _registry.setdefault(self.sink.id, _Published()).steps:
                return
        # Copied, because the bytes are a mapping of a file that retention will remove.
        data = tuple([read_staged(self.context.store, file).to_pybytes() for file in staged.files])
        with _lock:
            _registry.setdefault(self.sink.id, _Published()).steps.setdefault(name, data)

    def take_back(self, step: int) -> None:
        """Forget the steps after this one."""
        with _lock:
            published = _registry.get(self.sink.id)
            if published is not None:
                published.steps = {
                    name: rows for name, rows in published.steps.items() if name[1] <= step
                }


def _decoded(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
