"""What all tests share: one Spark for the whole test process."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from xdist.remote import Producer

from anabranch.spark.jvm import cache_classes
from anabranch.spark.session import use_session
from tests import jvm_archive
from tests.http.little import ended_afterwards
from tests.spreading import ON_SHARED_SPARK, BySpark, GiveWay, check_names, uses_shared_spark

# How long an example takes says something of the machine, not of the code.
settings.register_profile("anabranch", deadline=None)
settings.load_profile("anabranch")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program
# that a test starts and sends one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.task.killTimeout": "2s",
    "spark.python.daemon.module": "anabranch.spark.daemon",
}

LONGEST = (
    "test_schedules_1.py",
    "test_schedules_2.py",
    ON_SHARED_SPARK,
    "test_kill.py",
    "test_process_kills.py",
    "test_cluster.py",
    "test_tour.py",
    "test_rescale_kills.py",
    "test_node_process.py",
)
"""Begun first, they run beside everything else. Those that start Spark again and again are not the
first of all: its classes are not in their archive yet."""

NO_JAVA = "/nonexistent"

SHARED_MEMORY = Path("/dev/shm")
ROOM = 8 << 30
"""How much must be free there, so that tests may write to it."""


def pytest_configure(config: pytest.Config) -> None:
    """Let every process and every Spark that a test starts start fast."""
    marks = config.getoption("markexpr")
    if hasattr(config, "workerinput"):
        if "not spark" not in marks:
            config.pluginmanager.register(GiveWay())
    else:
        # Without compiled modules, each of some hundred processes would compile them all anew.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        short = "not soak" in marks
        if short:
            _write_to_memory(config)
        if "not spark" in marks:
            # A test that starts Java and does not say so fails.
            os.environ["JAVA_HOME"] = NO_JAVA
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = jvm_archive.options(short=short)
            config.add_cleanup(jvm_archive.begin())


def _write_to_memory(config: pytest.Config) -> None:
    """Let tests write to a file system in memory, if there is one with room.

    They sync tens of thousands of small files, which a disk takes its time for.
    """
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > ROOM:
        scratch = SHARED_MEMORY / f"anabranch-tests-{os.getuid()}"
        scratch.mkdir(mode=0o700, exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
        # A Spark that is killed leaves its files behind.
        os.environ["SPARK_LOCAL_DIRS"] = tempfile.mkdtemp(prefix="spark-", dir=scratch)
        config.add_cleanup(lambda: shutil.rmtree(os.environ["SPARK_LOCAL_DIRS"], True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the order is otherwise as it was."""
    check_names(item.nodeid for item in items)
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(_unit(item), len(place)))


def _unit(item: pytest.Item) -> str:
    """The file that a test is in, or that it is on the shared Spark."""
    shared = uses_shared_spark(item.path)
    assert shared or _started_spark.__name__ not in getattr(item, "fixturenames", ()), (
        f"{item.path} uses the shared Spark and tests/spreading.py does not know"
    )
    return ON_SHARED_SPARK if shared else item.path.name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BySpark:
    """How tests are spread over processes, if there are several."""
    return BySpark(config, log)


def pytest_collection_finish() -> None:
    """Let the garbage collector not go through what was collected: it stays to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def _started_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # In a locale without UTF-8, Java cannot open names that are not ASCII.
    os.environ["LC_ALL"] = "C.UTF-8"
    home = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("anabranch tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(home / "warehouse"))
    spark = builder.config("spark.local.dir", str(home / "scratch")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    cache_classes(spark._jvm)
    yield spark
    spark.stop()


@pytest.fixture
def spark(_started_spark: SparkSession) -> SparkSession:
    """The session of all tests, active in the test's thread: ``ab.run`` finds it there.

    What a test changes in its settings stays changed: use ``newSession()`` for that.
    """
    use_session(_started_spark)
    return _started_spark


@pytest.fixture(autouse=True)
def _littles_end() -> Iterator[None]:
    """No pipeline of one test makes steps beside another."""
    with ended_afterwards():
        yield
