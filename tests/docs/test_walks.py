"""The walks of docs/architecture.md: every function exists, and the walk of a row stays short."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "anabranch"
PAGE = ROOT / "docs" / "architecture.md"

_STATION = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)` ")


@dataclass(frozen=True)
class Station:
    """One line of a walk: a file below the package, and a function or method in it."""

    file: str
    function: str

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]


def walks() -> dict[str, list[Station]]:
    """The stations of each chapter that has any."""
    found: dict[str, list[Station]] = {}
    title = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        station = _STATION.match(line)
        if station is not None:
            found.setdefault(title, []).append(Station(station[1], station[2]))
    return found


def defines(file: Path, function: str) -> bool:
    body: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    for name in function.split("."):
        for node in body:
            if getattr(node, "name", None) == name:
                body = getattr(node, "body", [])
                break
        else:
            return False
    return True


def test_there_are_three_walks() -> None:
    assert list(walks()) == ["A row", "A rescale", "A restart"]


@pytest.mark.parametrize("station", [each for walk in walks().values() for each in walk], ids=str)
def test_every_station_is_there(station: Station) -> None:
    assert (SOURCE / station.file).is_file(), station
    assert defines(SOURCE / station.file, station.function), station


def test_a_row_passes_few_files_and_few_doors() -> None:
    walk = walks()["A row"]
    files = {station.file for station in walk}
    crossings = sum(before.room != after.room for before, after in pairwise(walk))
    assert len(files) <= 30
    assert crossings <= 20


def test_a_function_that_is_not_there_is_found() -> None:
    assert defines(SOURCE / "coordinator" / "machine.py", "Machine.handle")
    assert not defines(SOURCE / "coordinator" / "machine.py", "Machine.handled")
    assert not defines(SOURCE / "coordinator" / "machine.py", "handle")
