"""Checks of Java and Spark: whether the JVM can start, and which Python runs the tasks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from anabranch.cli.doctor.checks import Check, failed_check, ok, warn
from anabranch.cli.sizes import size
from anabranch.errors import AnabranchError
from anabranch.spark.class_archive import SWITCH, archive_path, is_usable

OLDEST_JAVA = 17
MODULE = "jdk.incubator.vector"
SECONDS = 20.0

_INSTALL = (
    "Install Java 17 or newer (on Debian openjdk-17-jre-headless) and put it on the PATH, or set "
    "JAVA_HOME."
)


def java_checks() -> Iterator[Check]:
    """The Java that Spark would start, Spark's own home, and the interpreter of its tasks."""
    java = find_java()
    yield java_check(java)
    if java is not None:
        yield from _module_check(java)
    yield from _home_check()
    yield interpreter_check()
    yield archive_check(archive_path())


def find_java() -> str | None:
    """The Java that Spark would start: from JAVA_HOME if set, else from the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_check(java: str | None) -> Check:
    """Whether Java starts and is new enough."""
    if java is None:
        return failed_check("java", "not found on the PATH, and JAVA_HOME is not set", _INSTALL)
    ran = _run([java, "-version"])
    if isinstance(ran, str):
        return failed_check("java", f"{java} does not run: {ran}", _INSTALL)
    release = java_release(ran.stderr + ran.stdout)
    if release is None:
        return failed_check("java", f"{java} does not print its version", _INSTALL)
    if release < OLDEST_JAVA:
        return failed_check(
            "java", f"{java} is Java {release}; Spark needs {OLDEST_JAVA}", _INSTALL
        )
    return ok("java", f"Java {release}, {java}")


def java_release(text: str) -> int | None:
    """The release that ``java -version`` names.

    >>> java_release('openjdk version "17.0.9" 2023-10-17')
    17
    >>> java_release('java version "1.8.0_392"')
    8
    """
    matched = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(matched[1]) if matched else None


def _module_check(java: str) -> Iterator[Check]:
    ran = _run([java, "--list-modules"])
    if isinstance(ran, str) or ran.returncode != 0:
        return  # java_check has reported why
    if re.search(rf"^{re.escape(MODULE)}\b", ran.stdout, re.MULTILINE):
        yield ok("java modules", MODULE)
    else:
        yield failed_check("java modules", f"{MODULE} is missing: Spark cannot start", _INSTALL)


def _home_check() -> Iterator[Check]:
    home = os.environ.get("SPARK_HOME")
    if home is None:
        return
    if not (Path(home) / "bin" / "spark-submit").exists():
        yield failed_check("SPARK_HOME", f"{home} is not Spark", "Unset SPARK_HOME.")
        return
    try:
        wanted = version("pyspark")
    except PackageNotFoundError:
        return
    jars = sorted(Path(home, "jars").glob("spark-core_*.jar"))
    if jars and not jars[0].stem.endswith(f"-{wanted}"):
        yield failed_check(
            "SPARK_HOME",
            f"{home} has {jars[0].name}, the Python package is {wanted}",
            "Unset SPARK_HOME, or point it to a Spark of the same version.",
        )
    else:
        yield ok("SPARK_HOME", home)


def interpreter_check() -> Check:
    """Whether tasks run in the same Python version: they unpickle what this one pickles."""
    name = "task interpreter"
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen is None or shutil.which(chosen) == sys.executable:
        return ok(name, sys.executable)
    ran = _run([chosen, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    do = f"Unset PYSPARK_PYTHON, or set it to {sys.executable}."
    if isinstance(ran, str) or ran.returncode != 0:
        return failed_check(name, f"PYSPARK_PYTHON={chosen} does not run", do)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if ran.stdout.strip() != here:
        what = f"PYSPARK_PYTHON={chosen} is Python {ran.stdout.strip()}, this is {here}"
        return failed_check(name, what, do)
    return warn(name, f"PYSPARK_PYTHON={chosen} differs from {sys.executable}", do)


def archive_check(archive: Path | None) -> Check:
    """Whether Spark starts from an archive of its Java classes. It works without one, slower."""
    name = "class archive"
    if archive is None:
        return ok(name, f"none: {SWITCH}=off, other Java options, or no Java")
    make = f"{sys.executable} -m anabranch.spark.class_archive"
    if not archive.exists():
        failed = archive.with_suffix(".failed")
        why = failed.read_text(encoding="utf-8").strip() if failed.exists() else ""
        if why:
            return warn(name, f"could not be made: {why}", f"Spark starts slower. Try: {make}.")
        return ok(name, f"not made yet: the next run makes it as it ends, or you do: {make}")
    if not is_usable(archive):
        do = "Remove it: it or its directory belongs to others, or others can write to it."
        return warn(name, f"{archive} is not used", do)
    return ok(name, f"{archive}, {size(archive.stat().st_size)}")


def session_check() -> Check:
    """Whether Spark starts and runs a job with Python tasks."""
    from anabranch.spark.trial import run_trial

    try:
        return ok("spark", run_trial())
    except AnabranchError as error:
        return failed_check("spark", error.what, error.do or "See Spark's output above.")
    except Exception as error:
        text = f"{type(error).__name__}: {str(error)[:500]}"
        return failed_check("spark", text, "See Spark's output above.")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str] | str:
    """Run a program; its output, or why it could not run."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS:g} s"
    except OSError as error:
        return error.strerror or str(error)
