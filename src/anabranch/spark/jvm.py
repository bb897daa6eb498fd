"""The JVM that Spark runs in: started quietly, its words passed on to ``sys.stderr``.

Started by pyspark, the JVM writes to the terminal behind Python's back: into a live view, past a
notebook. Started here, what it says comes line by line through ``sys.stderr``, whoever that is at
the time, but for one warning that no setting turns off.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from anabranch.errors import SparkUnavailable

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
_STACK = "-Xss8m"
"""The query of a wide dataflow is deep, and Spark goes through it by calling itself."""

PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
SESSION = "org.apache.spark.sql.classic.SparkSession"
STRUCT = "org.apache.spark.sql.types.StructType"
TREE_PATTERN = "org.apache.spark.sql.catalyst.trees.TreePattern"
"""Names of classes that more than one module uses."""

_BY_SHORT_NAME = {
    "PythonUtils": PYTHON_UTILS,
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
    "SparkSession": SESSION,
}
"""What pyspark asks the JVM for again and again."""

_ALWAYS_SAID = "WARNING: Using incubator modules"


def quiet(configuration: dict[str, str]) -> dict[str, str]:
    """The configuration with our logging and stack, which the user's Java options can override."""
    options = f"{_LOGGING} {_STACK} {configuration.get(JAVA_OPTIONS, '')}".strip()
    return {**configuration, JAVA_OPTIONS: options}


def start_jvm(configuration: dict[str, str]) -> None:
    """Start the JVM unless this process has one; a session made afterwards runs in it.

    Raises ``SparkUnavailable`` when it does not come up.
    """
    if SparkContext._gateway is not None:
        return
    settings = SparkConf(loadDefaults=False).setAll(list(configuration.items()))
    reading, writing = os.pipe()
    relay = threading.Thread(target=_relay, args=(reading,), name="anabranch-jvm", daemon=True)
    relay.start()
    try:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]  # pyspark left it so
            settings, popen_kwargs={"stderr": writing}
        )
    except (PySparkRuntimeError, OSError) as error:
        raise SparkUnavailable(
            f"The Java machine that Spark runs in did not start: {error}",
            do="Spark needs Java 17 or newer with the module jdk.incubator.vector: put java on "
            "the PATH or set JAVA_HOME. What it said itself was passed on to stderr.",
        ) from error
    finally:
        # The JVM has a copy of this end; without ours, its end is the end of the relay.
        os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway)
    keep_classes(gateway.jvm)


@lru_cache(maxsize=256)
def java_class(jvm: Any, name: str) -> Any:  # noqa: ANN401  (py4j has no types)
    """A class by its full name, looked for once.

    Written as ``jvm.java.lang.Object``, the JVM is asked for a class ``java``, then for one
    ``java.lang``, in each package that pyspark has imported, and goes through all jars every time.
    """
    return getattr(jvm, name)


def keep_classes(jvm: Any) -> None:  # noqa: ANN401
    """Let pyspark find the classes at once that it asks for by short names."""
    for short, name in _BY_SHORT_NAME.items():
        setattr(jvm, short, java_class(jvm, name))


def _relay(reading: int) -> None:
    """Pass on lines until the JVM ends. It must never wait for us, so nothing stops this."""
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(_ALWAYS_SAID):
                continue
            # The program may have closed or replaced its stderr with anything.
            with contextlib.suppress(Exception):
                sys.stderr.write(line)
                sys.stderr.flush()
