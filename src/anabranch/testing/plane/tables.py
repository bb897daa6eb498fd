"""State as a query sees it, read again only where its content is new."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from anabranch.records.placed import OperatorState
from anabranch.runs.run_file import map_verified
from anabranch.task.state_reader import Snapshot, read_table

Known: TypeAlias = dict[Hashable, pa.Table]
"""Tables by what they were read from."""

LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Tables:
    """Reads state. Every file that it is in is opened and checked, whatever is known."""

    store: Path
    known: Known | None

    def read(self, snapshot: Snapshot, state: OperatorState) -> pa.Table:
        """An operator's whole state."""
        # A run that is open in this process can be read though its file is gone.
        for each in state.runs:
            map_verified(f"{self.store}/{each.run.name}", each.run.bytes, each.run.checksum, "run")
        if self.known is None or any(each.run.blobs for each in state.runs):
            return read_table(snapshot.view(state.operator), self.store)
        # What has expired depends on the clock.
        clock = snapshot.clock_ns if state.shape.expires else 0
        content = tuple([(each.run.checksum, each.run.bytes, each.bins) for each in state.runs])
        key = (state.operator, clock, content)
        if key not in self.known:
            if len(self.known) >= LIMIT:
                self.known.clear()
            self.known[key] = read_table(snapshot.view(state.operator), self.store)
        return self.known[key]
