"""The dataflow of the tests that kill processes: two regions, both sensitive to order.

The tests copy this file to where they run it: its input, its output and what it leaves for the
tests lie beside it. Every input file begins with a row whose ``place`` is 0; whoever works on that
row says so in the file ``executed`` and waits as long as there is a file ``hold``; which step waits
is in the file ``waiting``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import anabranch as ab

VERSION = 1
MODULUS = 2**61 - 1
BASE = Path(__file__).resolve().parent


def chain(key: Any, row: Any, state: int | None) -> tuple[Any, int]:
    """Mixes every value into the state: another order gives another state."""
    if row.place == 0:
        _note(row.file)
    new = ((state or 7) * 31 + row.value + 1) % MODULUS
    return (row.other, row.value, new, VERSION), new


def second(key: Any, row: Any, state: Any) -> tuple[Any, Any]:
    """Counts and mixes: the count shows the place of each row in its key's order."""
    count, mixed = (0, 3) if state is None else state
    count, mixed = count + 1, (mixed * 131 + row.mixed) % MODULUS
    return (key.other, count, mixed), (count, mixed)


def _note(file: int) -> None:
    handle = os.open(BASE / "executed", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(handle, f"{file}\n".encode())
    os.close(handle)
    while (BASE / "hold").exists():
        (BASE / "waiting").write_text(str(file))
        time.sleep(0.02)


flow = ab.Dataflow("kills")
_first = (
    flow.source(
        "rows",
        ab.FileSource(
            BASE / "in",
            format="json",
            schema="file bigint, place bigint, name string, other bigint, value bigint",
            max_files_per_step=1,
        ),
    )
    .key_distribute("by-name", "name")
    .stateful_map(
        "chain",
        chain,
        state="mixed bigint",
        output="other bigint, value bigint, mixed bigint, version bigint",
    )
)
_first.sink("out-first", ab.FileSink(BASE / "first", format="json"))
(
    _first.where("value % 7 <> 3")
    .key_distribute("by-other", "other")
    .stateful_map(
        "second",
        second,
        state="count bigint, mixed bigint",
        output="other bigint, count bigint, mixed bigint",
    )
    .sink("out-second", ab.FileSink(BASE / "second", format="parquet"))
)
