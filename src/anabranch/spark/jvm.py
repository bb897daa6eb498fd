"""Spark's JVM: start it with its output relayed to ``sys.stderr``; find its classes quickly.

Started by pyspark, the JVM writes straight to the terminal: into a live view, past a notebook.
Started here, its output passes line by line through the current ``sys.stderr``, except for one
warning that no setting turns off.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from py4j.java_collections import ListConverter
from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from anabranch.errors import JvmDied, SparkUnavailable
from anabranch.spark.class_archive import archive_options, make_at_exit

Java = Any
"""An object of the JVM, which has no Python type."""

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
_REAP_SECONDS = 5.0

#: who wants to know of the end of a JVM, by its gateway
_listeners: dict[Any, list[Callable[[JvmDied], None]]] = {}
_listening = threading.Lock()


def with_java_options(configuration: dict[str, str]) -> dict[str, str]:
    """The configuration with our Java options; the user's override them."""
    own = configuration.get(JAVA_OPTIONS, "")
    options = (_LOGGING, _STACK, archive_options(own), own)
    return {**configuration, JAVA_OPTIONS: " ".join(filter(None, options))}


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
    make_at_exit(configuration.get(JAVA_OPTIONS, ""))
    SparkContext._ensure_initialized(gateway=gateway)
    cache_classes(gateway.jvm)


@lru_cache(maxsize=256)
def java_class(jvm: Java, name: str) -> Java:
    """A class by its full name, looked up once.

    ``jvm.java.lang.Object`` would look for a class ``java``, then for one ``java.lang``, in each
    package that pyspark has imported, and search all jars every time.
    """
    return getattr(jvm, name)


def java_list(spark: SparkSession, values: Iterable[Java]) -> Java:
    """The values as a ``java.util.List``."""
    gateway: Java = spark.sparkContext._gateway
    return ListConverter().convert(list(values), gateway._gateway_client)


def scala_seq(spark: SparkSession, values: Iterable[Java]) -> Java:
    """The values as a Scala sequence."""
    return _to_seq(spark._jvm)(java_list(spark, values))


@lru_cache(maxsize=1)
def _to_seq(jvm: Java) -> Java:
    return java_class(jvm, PYTHON_UTILS).toSeq


def scala_items(sequence: Java) -> Iterator[Java]:
    """The members of a Scala sequence."""
    for place in range(sequence.size()):
        yield sequence.apply(place)


def plans_below(plan: Java) -> list[Java]:
    """The children of a plan of Catalyst, and the plans inside its expressions."""
    return [*scala_items(plan.children()), *scala_items(plan.subqueries())]


def class_name(node: Java) -> str:
    """The short name of an object's class, without the ``$`` of Scala's singletons."""
    return str(node.getClass().getSimpleName()).rstrip("$")


def cache_classes(jvm: Java) -> None:
    """Cache the classes that pyspark looks up by their short names."""
    for short, name in _BY_SHORT_NAME.items():
        setattr(jvm, short, java_class(jvm, name))


def check_jvm() -> None:
    """Raise ``JvmDied`` unless the JVM answers."""
    gateway: Any = SparkContext._gateway
    try:
        if gateway is not None:
            java_class(gateway.jvm, "java.lang.System").nanoTime()
    except (Py4JNetworkError, OSError) as error:
        raise _death(gateway) from error


def on_jvm_death(died: Callable[[JvmDied], None]) -> Callable[[], None]:
    """Call a function, in a thread, when the JVM has ended; returns what makes it stop listening.

    One thread waits for each JVM, whoever started it.
    """
    gateway: Any = SparkContext._gateway
    with _listening:
        if gateway not in _listeners:
            _listeners[gateway] = []
            name = "anabranch-jvm-watch"
            threading.Thread(target=_wait, args=(gateway,), name=name, daemon=True).start()
        listeners = _listeners[gateway]
        listeners.append(died)

    def stop() -> None:
        with _listening, contextlib.suppress(ValueError):
            listeners.remove(died)

    return stop


def forget_dead_jvm() -> None:
    """Make pyspark forget a JVM that has ended, so that another can be started."""
    try:
        check_jvm()
    except JvmDied:
        SparkSession._instantiatedSession = None
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None


def _wait(gateway: Any) -> None:  # noqa: ANN401
    if getattr(gateway, "proc", None) is not None:
        gateway.proc.wait()
    else:
        # Started by spark-submit: its end closes a connection on which nothing is ever said.
        parameters = gateway.gateway_parameters
        with contextlib.suppress(OSError):
            address = (parameters.address, parameters.port)
            with socket.create_connection(address) as connection:
                connection.recv(1)
    with _listening:
        listeners = _listeners.pop(gateway)
    death = _death(gateway)
    for died in list(listeners):
        died(death)


def _death(gateway: Any) -> JvmDied:  # noqa: ANN401
    """The error for a JVM that has ended, with how it did where that is known."""
    process = getattr(gateway, "proc", None)
    what = "Spark's Java virtual machine has ended"
    if process is not None:
        what = f"Spark's Java virtual machine (process {process.pid}) has ended"
        # Its connections may close a moment before it can be waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_REAP_SECONDS)
            name = "" if code >= 0 else signal.Signals(-code).name
            what += f": killed by {name}" if name else f" with code {code}"
    return JvmDied(
        what,
        do="Nothing committed is lost. A node process is replaced; in your own process, run the "
        "pipeline again. The kernel's memory killer is the likeliest cause: see dmesg, and give "
        "Spark less memory (spark.driver.memory) or the machine more.",
    )


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
