"""The archive of Java classes: where it is, who may write it, who makes it, what it is for."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.spark import class_archive
from anabranch.spark.class_archive import (
    SWITCH,
    archive_options,
    archive_path,
    is_usable,
    make_archive,
    make_at_exit,
)
from tests.http.raw import until


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive of a user who has a Java and has no archive yet."""
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", SWITCH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    found = archive_path()
    assert found is not None
    return found


def made(archive: Path) -> None:
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive.write_bytes(b"classes")
    archive.chmod(0o600)


def test_it_is_used_once_it_is_there(archive: Path) -> None:
    assert archive_options() == ""
    made(archive)
    assert archive_options().split()[0] == f'-XX:SharedArchiveFile="{archive}"'


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (SWITCH, "off"),
        ("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/mine"),
        ("JAVA_HOME", "/nowhere"),
    ],
)
def test_there_is_none_if_turned_off_or_chosen_otherwise(
    archive: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    made(archive)
    monkeypatch.setenv(variable, value)
    assert archive_path() is None
    assert archive_options() == ""


def test_the_users_own_java_options_go_before(archive: Path) -> None:
    made(archive)
    assert archive_options("-XX:SharedArchiveFile=/mine") == ""
    assert archive_options("-Xmx1g") != ""


def test_another_java_has_another_archive(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "jdk" / "bin" / "java").write_text("a newer one")
    assert archive_path() not in (archive, None)


@pytest.mark.parametrize("open_to", [stat.S_IWGRP, stat.S_IWOTH])
@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_others_can_write_is_not_used(archive: Path, what: str, open_to: int) -> None:
    made(archive)
    assert is_usable(archive)
    path = archive if what == "file" else archive.parent
    path.chmod(path.stat().st_mode | open_to)
    assert not is_usable(archive)
    assert archive_options() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_others_own_is_not_used(archive: Path) -> None:
    made(archive)
    os.chown(archive, 12345, 12345)
    assert not is_usable(archive)


def test_one_process_makes_it_at_a_time(archive: Path) -> None:
    archive.parent.mkdir(parents=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not make_archive(archive)
    assert sorted(os.listdir(archive.parent)) == [archive.with_suffix(".lock").name]


def test_a_failure_is_noted_and_not_tried_again_by_itself(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "_PROGRAM", "anabranch.no_such_program")
    registered: list[object] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    make_at_exit()
    assert registered.count(class_archive._make_in_background) == 1
    assert not make_archive(archive)
    assert not archive.exists()
    assert "no_such_program" in archive.with_suffix(".failed").read_text()
    make_at_exit()
    assert registered.count(class_archive._make_in_background) == 1


def test_a_home_that_cannot_be_written_to_is_no_failure(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    elsewhere = archive_path()
    assert elsewhere is not None
    assert not make_archive(elsewhere)
    assert archive_options() == ""


def test_archives_that_nobody_uses_go(archive: Path) -> None:
    made(archive)
    old, recent = archive.with_name("spark-1-a.jsa"), archive.with_name("spark-1-b.jsa")
    old.write_bytes(b"")
    recent.write_bytes(b"")
    os.utime(old, (0, 0))
    class_archive._remove_unused(archive)
    assert sorted(os.listdir(archive.parent)) == sorted([archive.name, recent.name])


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_takes_its_classes_from_it(tmp_path: Path) -> None:
    options = os.environ["SPARK_SUBMIT_OPTS"]
    named = re.search(r"SharedArchiveFile=(\S+)", options)
    assert named is not None
    archive = Path(named[1])
    # Made beside the first tests, perhaps by another process.
    until(archive.exists, 300)
    # With this, Java does not start if the archive does not fit.
    given = f"-Xshare:on -Xlog:class+load:file={tmp_path}/loaded"
    environment = {
        **os.environ,
        "SPARK_SUBMIT_OPTS": given,
        "XDG_CACHE_HOME": str(archive.parents[1]),
    }
    program = "from anabranch.spark.trial import run_trial; run_trial()"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=500)
    lines = (tmp_path / "loaded").read_text().splitlines()
    shared = sum("source: shared objects file (top)" in line for line in lines)
    # Java's own archive has little more than a thousand; the others are made at run time.
    assert shared > 10_000
