"""Spark's Java classes in an archive that the JVM maps instead of loading them one by one.

Loading, checking and laying out the classes of Spark takes a quarter of the work of a start. Java
can keep the result in a file (class data sharing). Each user has one, in ``~/.cache/anabranch`` or
below ``XDG_CACHE_HOME``, for each pair of a Java and a Spark: a small pipeline runs once, and its
JVM writes the file as it ends. That happens when a process that has started Spark without one
ends, in the background; ``python -m anabranch.spark.class_archive`` does it at once.

Guarantees
    Nothing fails for it: without an archive, or with one that does not fit, the JVM starts as
    ever. An archive appears whole or not at all, and one process makes it at a time. A file that
    others could have written is not used. ``ANABRANCH_CLASS_ARCHIVE=off`` turns all of it off.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SWITCH = "ANABRANCH_CLASS_ARCHIVE"
MAKE_SECONDS = 600.0
UNUSED_SECONDS = 30 * 86400.0
OTHERS_CAN_WRITE = 0o022

# A JVM whose archive does not fit would say so on every start.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_OPTION = "SharedArchiveFile"
_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_PROGRAM = "anabranch.spark.archive_program"


def archive_options(given: str = "") -> str:
    """The Java options that use the archive; empty if there is none.

    ``given`` are the user's own options. Those that name an archive are left alone.
    """
    archive = archive_path(given)
    if archive is None or not is_usable(archive):
        return ""
    # Marks it as used.
    with contextlib.suppress(OSError):
        os.utime(archive)
    return f'-XX:{_OPTION}="{archive}" {_SILENT}'


def archive_path(given: str = "") -> Path | None:
    """Where the archive of this Java and this Spark is; None if there is to be none."""
    options = [given, *(os.environ.get(name, "") for name in _VARIABLES)]
    if os.environ.get(SWITCH) == "off" or any(_OPTION in text for text in options):
        return None
    try:
        key = hashlib.sha256("\n".join(_identity()).encode()).hexdigest()[:16]
        path = _cache_directory() / f"spark-{version('pyspark')}-{key}.jsa"
    except (OSError, RuntimeError, ImportError):
        return None
    # Spark splits its options at blanks and quotes.
    return None if set(str(path)) & set("\"'\\") else path


def is_usable(archive: Path) -> bool:
    """Whether it is there, and nobody but this user can have written it."""
    try:
        found = [archive.stat(), archive.parent.stat()]
    except OSError:
        return False
    own = all(each.st_uid == os.geteuid() for each in found)
    return own and not any(each.st_mode & OTHERS_CAN_WRITE for each in found)


def make_at_exit(given: str = "") -> None:
    """Let the archive be made in the background when this process ends, if it is missing."""
    archive = archive_path(given)
    if archive is not None and not archive.exists() and not _failed(archive).exists():
        atexit.register(_make_in_background)


def make_archive(archive: Path) -> bool:
    """Make the archive, unless it is there or another process is at it; whether it is there now.

    A failure is noted beside it, so that it is not tried again and again.
    """
    with _lock(archive) as locked:
        if not locked or archive.exists():
            return archive.exists()
        try:
            _write(archive)
        except (OSError, subprocess.SubprocessError) as error:
            with contextlib.suppress(OSError):
                _failed(archive).write_text(f"{error}\n", encoding="utf-8")
            return False
        _failed(archive).unlink(missing_ok=True)
        _remove_unused(archive)
        return True


def _identity() -> Iterator[str]:
    """What an archive depends on: the Java virtual machine and the jars."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise FileNotFoundError("there is no Java")
    java = Path(found).resolve(strict=True)
    library = java.parent.parent / "lib" / "server" / "libjvm.so"
    for part in (java, library if library.exists() else java, _jars()):
        stat = part.stat()
        yield f"{part} {stat.st_size} {stat.st_mtime_ns}"


def _jars() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise FileNotFoundError("there is no Spark")
    home = os.environ.get("SPARK_HOME") or Path(found.origin).parent
    return (Path(home) / "jars").resolve(strict=True)


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anabranch"


def _failed(archive: Path) -> Path:
    return archive.with_suffix(".failed")


@contextlib.contextmanager
def _lock(archive: Path) -> Iterator[bool]:
    """Hold the lock of an archive; false if another process does."""
    try:
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(archive.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)


def _write(archive: Path) -> None:
    """Run a small pipeline in a JVM that writes the archive as it ends."""
    with tempfile.TemporaryDirectory(prefix="anabranch-", ignore_cleanup_errors=True) as scratch:
        aside = archive.with_suffix(".part")
        aside.unlink(missing_ok=True)
        writing = f'-XX:ArchiveClassesAtExit="{aside}" {_SILENT}'
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": writing, SWITCH: "off"}
        # The JVM outlives the program; its end of these pipes says when it has ended.
        subprocess.run(
            [sys.executable, "-m", _PROGRAM, scratch],
            env=environment,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MAKE_SECONDS,
            check=True,
        )
        aside.chmod(0o600)
        aside.rename(archive)


def _remove_unused(archive: Path) -> None:
    """Remove the archives of other versions that nobody has used for a month."""
    for other in archive.parent.glob("spark-*.jsa"):
        with contextlib.suppress(OSError):
            if other != archive and time.time() - other.stat().st_mtime > UNUSED_SECONDS:
                other.unlink()


def _make_in_background() -> None:
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def main() -> None:
    """Make the archive of this Java and this Spark, unless it is there."""
    os.nice(10)
    archive = archive_path()
    if archive is not None:
        make_archive(archive)


if __name__ == "__main__":
    main()
