"""One of two sources is paused on a real Spark: its rows stay out, the others' flow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.http.raw import until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PATIENCE = 60.0


def arrive(place: Path, file: int) -> None:
    """A file of two rows; the name of the directory is in them."""
    rows = [{"name": place.name, "n": 2 * file + more} for more in (0, 1)]
    made = place / f".{file}.json"
    made.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.rename(place / f"{file}.json")


def count(key: Any, row: Any, seen: Any) -> Any:
    """The row, and which of its source's rows it is."""
    return (key.name, row.n, seen or 0), (seen or 0) + 1


def test_its_files_stay_where_they_are_until_it_is_started(tmp_path: Path) -> None:
    flow, rows = ab.Dataflow("two"), ab.MemorySink()
    places = [tmp_path / "left", tmp_path / "right"]
    streams = []
    for place in places:
        place.mkdir()
        arrive(place, 0)
        streams.append(flow.source(place.name, ab.FileSource(place, "json", "name string, n int")))
    streams[0].union(streams[1]).key_distribute("by-name", "name").stateful_map(
        "counts", count, state=None, output="name string, n int, place int"
    ).sink("rows", rows)

    def read(name: str) -> list[tuple[int, int]]:
        found = [row for table in rows.steps().values() for row in table.to_pylist()]
        return sorted((row["n"], row["place"]) for row in found if row["name"] == name)

    def come(name: str, count: int) -> None:
        until(lambda: read(name) == [(n, n) for n in range(count)], seconds=PATIENCE)

    pipeline = ab.run(flow, directory=tmp_path / "state", workers=2, bins=8)
    come("left", 2)
    come("right", 2)
    assert [each.paused for each in pipeline.pause(source="left").sources] == [True, False]
    for file in (1, 2):
        for place in places:
            arrive(place, file)
        come("right", 2 * file + 2)
    assert read("left") == [(0, 0), (1, 1)]
    assert pipeline.status().phase is ab.Phase.RUNNING
    pipeline.start(source="left")
    come("left", 6)
    pipeline.shutdown()
    assert read("right") == [(n, n) for n in range(6)]
