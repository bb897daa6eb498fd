"""What is found at a place, on real directories."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

import pytest

from anabranch.errors import SourceUnavailable, UnreadableFile
from anabranch.sources import discovery
from anabranch.sources.discovery import find, place_of, present


def put(root: Path, *names: str, text: str = "x") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(0, 1_000))


def nothing_known(directory: str) -> Set[str]:
    return frozenset()


def names(root: Path, path: str, *, recursive: bool = False) -> list[str]:
    place = present(place_of(str(root / path), recursive=recursive))
    return [os.path.relpath(found.path, root) for found in find(place, nothing_known)]


TREE = [
    "in/a.json",
    "in/b.csv",
    "in/.hidden",
    "in/_done",
    "in/_day=1",
    "in/c.json._COPYING_",
    "in/2024-01/d.json",
    "in/2024-02/e.json",
    "in/2024-02/deep/f.json",
    "in/_tmp/g.json",
    "in/.git/h.json",
    "in/2024-02/_SUCCESS",
    "in/2024-02/_day=2",
    "in/x[1]/i.json",
]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("in", ["in/a.json", "in/b.csv"]),
        ("in/", ["in/a.json", "in/b.csv"]),
        ("in/../in/./", ["in/a.json", "in/b.csv"]),
        ("in/a.json", ["in/a.json"]),
        ("in/_day=1", ["in/_day=1"]),
        ("in/_tmp", ["in/_tmp/g.json"]),
        ("in/_tmp/*.json", ["in/_tmp/g.json"]),
        ("in/*.json", ["in/a.json"]),
        ("in/?.[cj]s*", ["in/a.json", "in/b.csv"]),
        ("in/2024-*", ["in/2024-01/d.json", "in/2024-02/e.json"]),
        ("in/2024-*/*.json", ["in/2024-01/d.json", "in/2024-02/e.json"]),
        ("in/2024-*/e.json", ["in/2024-02/e.json"]),
        ("in/*/deep", ["in/2024-02/deep/f.json"]),
        ("in/*/deep/*", ["in/2024-02/deep/f.json"]),
        ("in/*/deep/f.json", ["in/2024-02/deep/f.json"]),
        ("in/*/absent/*", []),
        ("in/*/_day=2", ["in/2024-02/_day=2"]),
        ("in/x[[]1]/*", ["in/x[1]/i.json"]),
        ("in/_*", []),
        (
            "in/**/*.json",
            [
                "in/2024-01/d.json",
                "in/2024-02/deep/f.json",
                "in/2024-02/e.json",
                "in/a.json",
                "in/x[1]/i.json",
            ],
        ),
        ("in/**/**/deep/**", ["in/2024-02/deep/f.json"]),
        ("in/**/2024-02/**/*.json", ["in/2024-02/deep/f.json", "in/2024-02/e.json"]),
    ],
)
def test_a_path_finds(tmp_path: Path, path: str, expected: list[str]) -> None:
    put(tmp_path, *TREE)
    assert names(tmp_path, path) == expected


@pytest.mark.parametrize("path", ["in", "in/**"])
def test_subdirectories_on_request(tmp_path: Path, path: str) -> None:
    put(tmp_path, *TREE)
    assert names(tmp_path, path, recursive=True) == [
        "in/2024-01/d.json",
        "in/2024-02/deep/f.json",
        "in/2024-02/e.json",
        "in/a.json",
        "in/b.csv",
        "in/x[1]/i.json",
    ]
    assert names(tmp_path, "in/**") == names(tmp_path, "in", recursive=True)


def test_order_is_time_then_path(tmp_path: Path) -> None:
    put(tmp_path, "in/c", "in/a", "in/b", "in/z")
    os.utime(tmp_path / "in/z", ns=(0, 999))
    os.utime(tmp_path / "in/a", ns=(0, 1_001))
    assert names(tmp_path, "in") == ["in/z", "in/b", "in/c", "in/a"]


def test_empty_files_links_to_directories_and_dangling_links_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "in/full", "elsewhere/target")
    put(tmp_path, "in/empty", text="")
    (tmp_path / "in/linked-file").symlink_to(tmp_path / "elsewhere/target")
    (tmp_path / "in/linked-directory").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in/cycle").symlink_to(tmp_path / "in")
    (tmp_path / "in/dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "in/pipe")
    assert names(tmp_path, "in", recursive=True) == ["in/full", "in/linked-file"]
    assert names(tmp_path, "in/**") == ["in/full", "in/linked-file"]


def test_a_directory_may_take_the_name_of_a_known_file(tmp_path: Path) -> None:
    put(tmp_path, "in/day/a.json")
    place = place_of(str(tmp_path / "in"), recursive=True)
    known = {str(tmp_path / "in"): frozenset({"day"})}
    found = find(place, lambda directory: known.get(directory, frozenset()))
    assert [Path(f.path).name for f in found] == ["a.json"]


def test_known_files_are_not_asked_for_their_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for i in range(3_000):
        (tmp_path / "in" / f"{i}").touch()
    put(tmp_path, "in/new-1", "in/new-2")
    asked = []
    real = os.stat

    def counting(path: str) -> os.stat_result:
        asked.append(path)
        return real(path)

    monkeypatch.setattr("anabranch.sources.discovery.os.stat", counting)
    old = frozenset(f"{i}" for i in range(3_000))
    found = find(place_of(str(tmp_path / "in"), recursive=False), lambda directory: old)
    assert [Path(f.path).name for f in found] == ["new-1", "new-2"]
    assert len(asked) == 2


@pytest.mark.parametrize("path", ["absent", "absent/*.json", "absent/a.json"])
def test_a_missing_place_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(SourceUnavailable) as caught:
        present(place_of(str(tmp_path / path), recursive=False))
    assert str(tmp_path / "absent") in str(caught.value)
    assert "Create it" in str(caught.value)


def test_a_base_that_vanishes_is_an_error_and_a_subdirectory_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "in/a/x", "in/b/y")
    real = os.scandir

    def vanishing(path: str) -> object:
        if path.endswith("/a"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path)

    monkeypatch.setattr("anabranch.sources.discovery.os.scandir", vanishing)
    assert names(tmp_path, "in", recursive=True) == ["in/b/y"]
    with pytest.raises(SourceUnavailable, match="no file or directory"):
        find(place_of(str(tmp_path / "in" / "a"), recursive=False), nothing_known)


def test_a_refusal_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "in/a/x")

    def refusing(path: str) -> object:
        raise PermissionError(13, "Permission denied", path)

    place = present(place_of(str(tmp_path / "in"), recursive=False))
    monkeypatch.setattr("anabranch.sources.discovery.os.scandir", refusing)
    with pytest.raises(SourceUnavailable, match="Permission denied"):
        find(place, nothing_known)


@pytest.mark.parametrize("name", ["10:30.json", b"caf\xe9.json"])
def test_a_name_that_spark_cannot_open_is_refused(tmp_path: Path, name: str | bytes) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    path = os.path.join(os.fsencode(directory), os.fsencode(name))
    with open(path, "w") as file:
        file.write("x")
    with pytest.raises(UnreadableFile, match="Rename it"):
        names(tmp_path, "in")


@pytest.mark.parametrize("name", ["_done", ".hidden", "c.json._COPYING_"])
def test_a_name_is_refused_that_spark_would_read_as_nothing(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"in/{name}")
    for path in (f"in/{name}", f"*/{name}"):
        with pytest.raises(UnreadableFile, match="no data to it"):
            names(tmp_path, path)


def test_a_file_that_vanishes_while_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "in/a", "in/b")
    monkeypatch.setattr(
        discovery, "stat_file", lambda path: None if path.endswith("a") else os.stat(path)
    )
    assert names(tmp_path, "in") == ["in/b"]
