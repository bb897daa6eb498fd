"""``anabranch doctor`` in whole and in broken environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import app as cli
from anabranch.cli.doctor.checks import Verdict, ok
from anabranch.cli.doctor.directory_checks import directory_checks, room_check, sync_check
from anabranch.cli.doctor.machine_checks import GIB, cores_check, memory_check, scratch_check
from anabranch.cli.doctor.package_checks import package_check, python_check, satisfies
from anabranch.cli.doctor.spark_checks import archive_check


def diagnosed(*arguments: str, code: int = 0) -> dict[str, tuple[str, str, str | None]]:
    """Each line by its name: verdict, what was found, what to do."""
    ran = CliRunner().invoke(cli.app, ["doctor", "--json", *arguments])
    assert ran.exit_code == code, ran.output
    return {one["name"]: (one["verdict"], one["what"], one["do"]) for one in json.loads(ran.stdout)}


def fake_java(directory: Path, script: str) -> Path:
    """A program named java that does as the script says."""
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


@pytest.mark.spark
def test_this_machine_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    found = diagnosed("--directory", str(tmp_path))
    assert {
        "python",
        "pyspark",
        "pyarrow",
        "java",
        "java modules",
        "loopback",
        "hard links",
    } <= set(found)
    assert found["task interpreter"] == ("OK", sys.executable, None)
    assert "FAIL" not in {verdict for verdict, _, _ in found.values()}
    assert os.listdir(tmp_path) == []


@pytest.mark.spark
def test_lines_for_people(tmp_path: Path) -> None:
    ran = CliRunner().invoke(cli.app, ["doctor", "--directory", str(tmp_path / "new" / "deep")])
    assert ran.exit_code == 0
    assert "OK    hard links: work\n" in ran.stdout
    assert os.listdir(tmp_path) == []


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict, what, do = diagnosed(code=1)["java"]
    assert (verdict, what) == ("FAIL", "not found on the PATH, and JAVA_HOME is not set")
    assert do is not None
    assert "Install Java 17" in do


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("""echo 'openjdk version "1.8.0_392"' >&2""", "is Java 8; Spark needs 17"),
        ("""echo 'openjdk version "11.0.21" 2023-10-17' >&2""", "is Java 11; Spark needs 17"),
        ("echo hello", "does not print its version"),
        ("exec /nowhere/java", "does not print its version"),
    ],
)
def test_a_java_that_will_not_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, said: str
) -> None:
    java = fake_java(tmp_path, script)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    verdict, what, _ = diagnosed(code=1)["java"]
    assert (verdict, what) == ("FAIL", f"{java} {said}")


def test_java_home_goes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    verdict, what, _ = diagnosed(code=1)["java"]
    assert verdict == "FAIL"
    assert what.startswith(f"{tmp_path}/bin/java does not run: No such file")


def test_a_java_without_the_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = """
    case "$1" in
      -version) echo 'openjdk version "21.0.1"' >&2;;
      --list-modules) echo java.base@21.0.1; echo jdk.incubator.vectors@21;;
    esac"""
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = diagnosed(code=1)
    assert found["java"][0] == "OK"
    assert found["java modules"][:2] == (
        "FAIL",
        "jdk.incubator.vector is missing: Spark cannot start",
    )


def test_an_interpreter_that_will_not_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "python2"
    other.write_text("#!/bin/sh\necho 2.7\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    verdict, what, _ = diagnosed(code=1)["task interpreter"]
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (verdict, what) == ("FAIL", f"PYSPARK_PYTHON={other} is Python 2.7, this is {here}")
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "nowhere"))
    assert diagnosed(code=1)["task interpreter"][0] == "FAIL"


def test_another_spark_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert diagnosed(code=1)["SPARK_HOME"][0] == "FAIL"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.0.jar").touch()
    verdict, what, _ = diagnosed(code=1)["SPARK_HOME"]
    assert verdict == "FAIL"
    assert "spark-core_2.13-3.5.0.jar" in what


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (check,) = directory_checks(tmp_path / "file" / "state")
    assert (check.verdict, check.what) == (Verdict.FAIL, f"{tmp_path / 'file'} is not a directory")


@pytest.mark.parametrize(
    ("mode", "verdict"), [(0o700, "OK"), (0o770, "OK"), (0o755, "WARN"), (0o777, "FAIL")]
)
def test_a_pipeline_that_others_may_use_is_told(tmp_path: Path, mode: int, verdict: str) -> None:
    assert "access" not in [check.name for check in directory_checks(tmp_path)]
    (tmp_path / "journal").mkdir()
    tmp_path.chmod(mode)
    (check,) = [check for check in directory_checks(tmp_path) if check.name == "access"]
    assert check.verdict == verdict


def test_a_directory_that_takes_no_files() -> None:
    *_, check = directory_checks(Path("/proc"))
    assert check.verdict is Verdict.FAIL
    assert check.what.startswith("cannot write to /proc: ")


def test_thresholds(tmp_path: Path) -> None:
    found = [
        room_check(tmp_path, 1 << 20),
        room_check(tmp_path, GIB),
        room_check(tmp_path, 100 * GIB),
        memory_check(1 << 20),
        memory_check(GIB),
        memory_check(8 * GIB),
        cores_check(1),
        cores_check(2),
        scratch_check("x", 1),
        scratch_check("x", 2 * GIB),
        python_check((3, 10, 0)),
    ]
    words = [check.verdict.value for check in found]
    assert words == ["FAIL", "WARN", "OK", "FAIL", "WARN", "OK", "WARN", "OK", "WARN", "OK", "FAIL"]
    assert all(check.do for check in found if check.verdict is not Verdict.OK)


def test_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.cli.doctor.directory_checks.SLOW_SECONDS", -1.0)
    assert sync_check(tmp_path).verdict is Verdict.WARN


def test_packages() -> None:
    assert package_check("no-such-package>=1").verdict is Verdict.FAIL
    assert package_check("msgspec>=999").verdict is Verdict.FAIL
    assert package_check("msgspec>=0.1; python_version > '3'").verdict is Verdict.OK
    assert package_check("typer[all] (>=0.1)").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("found", "wanted", "taken"),
    [
        ("4.3.0", "==4.3.*", True),
        ("4.30.0", "==4.3.*", False),
        ("2.10", ">=2.2,<3", True),
        ("3.0.0", ">=2.2,<3", False),
        ("3.0.0rc1", "<3", False),
        ("1.0", "==1.0.0", True),
        ("1.0.1", "!=1.0.1", False),
        ("1.0", ">1", False),
        ("1.0", "<=1", True),
        ("1.0", "", True),
        ("1.0", "~=1.0", True),
    ],
)
def test_versions(found: str, wanted: str, taken: bool) -> None:
    assert satisfies(found, wanted) is taken


@pytest.mark.spark
def test_spark_starts_and_runs_a_job(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.app", "doctor", "--spark", "--json"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    last = json.loads(ran.stdout)[-1]
    assert (last["name"], last["verdict"]) == ("spark", "OK")
    assert "starts in" in last["what"]


def test_the_archive_of_classes_is_told_of(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    assert archive_check(None).verdict is Verdict.OK
    missing = archive_check(archive)
    assert (missing.verdict, missing.what.split(":")[0]) == (Verdict.OK, "not made yet")
    archive.with_suffix(".failed").write_text("No space left on device\n")
    failed = archive_check(archive)
    assert failed.verdict is Verdict.WARN
    assert failed.what == "could not be made: No space left on device"
    assert failed.do is not None
    assert "-m anabranch.spark.class_archive" in failed.do
    tmp_path.chmod(0o700)
    archive.write_bytes(b"x" * 2048)
    archive.chmod(0o600)
    assert archive_check(archive) == ok("class archive", f"{archive}, 2.0 KiB")
    archive.chmod(0o622)
    assert archive_check(archive).verdict is Verdict.WARN
