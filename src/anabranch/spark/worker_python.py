"""The interpreter of Spark's Python workers: whether it can run our tasks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext

from anabranch.errors import SparkUnavailable
from anabranch.spark.jvm import Java

MODULES = ("anabranch", "pyarrow", "numpy", "msgspec")
"""What a worker imports before it knows anything of the driver."""

_PROBE = f"""
import importlib.util, sys
missing = [name for name in {MODULES} if importlib.util.find_spec(name) is None]
print("%d.%d" % sys.version_info[:2], *missing)
"""
_SECONDS = 30


def check_worker_python(context: SparkContext) -> None:
    """Raise ``SparkUnavailable`` if the workers of someone else's Spark cannot run our tasks.

    Only where they run on this machine: elsewhere, the first step tells.
    """
    java: Java = context._jsc
    chosen = context.pythonExec
    path = shutil.which(chosen)
    if not java.sc().isLocal() or (path is not None and Path(path) == Path(sys.executable)):
        return
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        ran = subprocess.run(
            [chosen, "-c", _PROBE], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        raise wrong_python(chosen, "which does not run") from None
    version, *missing = ran.stdout.split()
    if missing:
        raise wrong_python(chosen, f"which does not have {', '.join(missing)}")
    if version != here:
        raise wrong_python(chosen, f"which is Python {version}, and this is {here}")


def wrong_python(chosen: str, why: str) -> SparkUnavailable:
    """The error for an interpreter that cannot run our tasks."""
    return SparkUnavailable(
        f"The Python workers of this Spark session run {chosen}, {why}",
        do=f"Stop the session, set the environment variable PYSPARK_PYTHON={sys.executable} before "
        "Spark is started, and run the program again. Or start no session: the pipeline does.",
    )
