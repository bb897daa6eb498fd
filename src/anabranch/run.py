"""Running a dataflow: the one place that chooses implementations."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.validate import validate
from anabranch.node.core import NodeCore
from anabranch.node.program import Program
from anabranch.node.runner import Runner, Settings, StepDone
from anabranch.node.threads import ThreadedNode
from anabranch.pipeline import Pipeline, wall_clock
from anabranch.spark.analyzer import SparkAnalyzer
from anabranch.spark.code import save_program
from anabranch.spark.frames import SparkFrames
from anabranch.spark.plane import SparkPlane
from anabranch.spark.query import SparkQueries
from anabranch.spark.session import open_session
from anabranch.spark.sources import SparkSources, with_schemas
from anabranch.state.bins import bin_bits
from anabranch.state.files import ensure_directory
from anabranch.state.lock import DirectoryLock

BINS = 256


def run(
    flow: Dataflow,
    *,
    directory: str | os.PathLike[str],
    workers: int = 2,
    bins: int = BINS,
    master: str | None = None,
    spark_conf: dict[str, str] | None = None,
    settings: Settings | None = None,
    watch: Callable[[StepDone], None] | None = None,
    reached: Callable[[str, int], None] | None = None,
) -> Pipeline:
    """Start a dataflow and return its handle.

    Running it again with the same ``directory`` continues exactly where it stopped, with any
    number of ``workers``. The Spark of this process is used if there is one; else it is started on
    ``master`` (``local[*]`` unless told otherwise) with ``spark_conf``, of which the settings that
    can change at run time hold for the pipeline in either case. ``bins`` is fixed when the
    directory is made. ``watch`` is called with every committed step, ``reached`` at the named
    points of a step (``planned``, ``ran``, ``committed``, ``publishing <sink>``, ``published``;
    where Spark writes the files of a sink also ``written``, ``decided``, ``placed`` and
    ``told <sink>``).

    Raises ``InvalidDataflow`` with all problems of the dataflow, and ``DirectoryError`` when the
    directory belongs to something else; then nothing was started.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    bin_bits(bins)
    chosen = replace(settings or Settings(), workers=workers)
    spark = open_session(master, spark_conf)
    typed = validate(with_schemas(flow.graph(), spark), SparkAnalyzer(spark))
    program = Program(typed, bins)
    path = Path(directory).absolute()
    ensure_directory(path)
    lock = DirectoryLock(path)
    lock.acquire()
    try:
        code = save_program(path, program)
        sources = SparkSources(spark, path)
        plane = SparkPlane(spark, program, path, code, sources)
        points = reached or (lambda point, step: None)
        frames = SparkFrames(lambda: open_session(master, spark_conf))
        runner = Runner(
            program, path, plane, code, chosen, wall_clock, points, frames, sources.open
        )
        runner.recover()
    except BaseException:
        lock.release()
        raise
    queries = SparkQueries(spark, path)
    pipeline = Pipeline(path, runner, watch, lock.release, queries)
    pipeline.start()
    return pipeline


def build_node(
    flow: Dataflow,
    *,
    directory: str | os.PathLike[str],
    bins: int = BINS,
    master: str | None = None,
    spark_conf: dict[str, str] | None = None,
    code: str | None = None,
    grace_seconds: float = 120.0,
    reached: Callable[[str, int], None] = lambda point, step: None,
) -> ThreadedNode:
    """A node for a dataflow, with Spark, in this process. Nothing is open yet.

    ``code`` is the hash that the dataflow goes by, that of the pickled dataflow unless told
    otherwise. Raises ``InvalidDataflow`` with all problems of the dataflow.
    """
    bin_bits(bins)
    spark = open_session(master, spark_conf)
    typed = validate(with_schemas(flow.graph(), spark), SparkAnalyzer(spark))
    program = Program(typed, bins)
    path = Path(directory).absolute()
    ensure_directory(path)
    pickled = save_program(path, program)
    sources = SparkSources(spark, path)
    core = NodeCore(
        program,
        path,
        SparkPlane(spark, program, path, pickled, sources),
        code or pickled,
        clock=time.monotonic,
        boot=secrets.token_hex(8),
        application=str(spark.sparkContext.applicationId),
        frames=SparkFrames(lambda: open_session(master, spark_conf)),
        open_source=sources.open,
        grace_seconds=grace_seconds,
        pickled=pickled,
        reached=reached,
    )
    return ThreadedNode(core, SparkQueries(spark, path))
