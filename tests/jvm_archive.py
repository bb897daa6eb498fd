"""Java's options in the tests, which start Spark dozens of times.

They use the archive of Java classes that users have, which is made beside the first tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from anabranch.spark.class_archive import archive_path, make_archive

STACK = "-Xss8m"
SHORT_RUNS = f"{STACK} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Most tests are short: compiling for long runs costs more than it brings.

With that compiler alone, Java would keep a fifth as much compiled code as usual, which is not
enough for Spark: in a session of many tests it throws code away and compiles it again, for a
quarter of the time.
"""

_ARCHIVE = archive_path()
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def options(*, short: bool) -> str:
    """What a JVM of the tests is started with. As long as there is no archive, it does without."""
    given = SHORT_RUNS if short else STACK
    return given if _ARCHIVE is None else f"{given} -XX:SharedArchiveFile={_ARCHIVE} {_SILENT}"


def begin() -> Callable[[], None]:
    """Make the archive beside the first tests, if there is none; gives how to wait for it."""
    if _ARCHIVE is None or _ARCHIVE.exists():
        return lambda: None
    making = threading.Thread(target=make_archive, args=(_ARCHIVE,), name="jvm-archive")
    making.start()
    return making.join
