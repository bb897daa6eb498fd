"""Spark's JVM: start it with its output relayed to ``sys.stderr``; find its classes quickly.

Started by pyspark, the JVM writes straight to the terminal: into a live view, past a notebook.
Started here, its output passes line by line through the current ``sys.stderr``, except for one
warning that no setting turns off.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
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
"""The query of a wide dataflow is deep, and Spark traverses it recursively."""

PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
SESSION = "org.apache.spark.sql.classic.SparkSession"
STRUCT = "org.apache.spark.sql.types.StructType"
TREE_PATTERN = "org.apache.spark.sql.catalyst.trees.TreePattern"
"""Classes that more than one module uses."""

_BY_SHORT_NAME = {
    "PythonUtils": PYTHON_UTILS,
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
    "SparkSession": SESSION,
}
"""Classes that pyspark looks up again and again."""

_UNAVOIDABLE = "WARNING: Using incubator modules"


def with_java_options(configuration: dict[str, str]) -> dict[str, str]:
    """The configuration with our logging and stack size; the user's Java options override them."""
    options = f"{_LOGGING} {_STACK} {configuration.get(JAVA_OPTIONS, '')}".strip()
    return {**configuration, JAVA_OPTIONS: options}


def start_jvm(configuration: dict[str, str]) -> None:
    """Start the JVM, unless this process has one; later sessions run in it.

    Raises ``SparkUnavailable`` if it does not start.
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
            f"Spark's Java virtual machine did not start: {error}",
            do="Spark needs Java 17 or newer with the module jdk.incubator.vector: put java on "
            "the PATH or set JAVA_HOME. Its own output is on stderr.",
        ) from error
    finally:
        # The JVM has a copy of this end; without ours, the relay ends when the JVM does.
        os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway)
    cache_classes(gateway.jvm)


@lru_cache(maxsize=256)
def java_class(jvm: Any, name: str) -> Any:  # noqa: ANN401  (py4j has no types)
    """A class by its full name, looked up once.

    ``jvm.java.lang.Object`` would look for a class ``java``, then for one ``java.lang``, in each
    package that pyspark has imported, and search all jars every time.
    """
    return getattr(jvm, name)


def scala_items(sequence: Any) -> Iterator[Any]:  # noqa: ANN401
    """The members of a Scala sequence."""
    for place in range(sequence.size()):
        yield sequence.apply(place)


def class_name(node: Any) -> str:  # noqa: ANN401
    """The short name of an object's class, without the ``$`` of Scala's singletons."""
    return str(node.getClass().getSimpleName()).rstrip("$")


def cache_classes(jvm: Any) -> None:  # noqa: ANN401
    """Cache the classes that pyspark looks up by their short names."""
    for short, name in _BY_SHORT_NAME.items():
        setattr(jvm, short, java_class(jvm, name))


def _relay(reading: int) -> None:
    """Relay lines until the JVM ends. Nothing may stop this: the JVM would block."""
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(_UNAVOIDABLE):
                continue
            # The program may have closed or replaced its stderr.
            with contextlib.suppress(Exception):
                sys.stderr.write(line)
                sys.stderr.flush()
