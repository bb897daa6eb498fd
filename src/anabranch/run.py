"""Run a dataflow: the only module that chooses implementations.

It imports them when it needs them: ``import anabranch`` loads this module.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.coordinator.driver import Driver, Nodes
    from anabranch.coordinator.effects import StepDone
    from anabranch.coordinator.operations import LoadCheckpoint
    from anabranch.coordinator.settings import Settings
    from anabranch.dataflow.flow import Dataflow
    from anabranch.http.serving import Served
    from anabranch.journal.leadership import Leadership
    from anabranch.node.process import NodeProcess
    from anabranch.node.threads import ThreadedNode
    from anabranch.pipeline import Pipeline
    from anabranch.task.worker_home import Homes

BINS = 256

Reached = Callable[[str, int], None]


def run(
    flow: Dataflow,
    *,
    directory: str | os.PathLike[str],
    workers: int | None = None,
    bins: int = BINS,
    master: str | None = None,
    spark_conf: dict[str, str] | None = None,
    settings: Settings | None = None,
    isolate_workers: bool | None = None,
    take_over: bool = False,
    rewind: int | None = None,
    accept_duplicates: bool = False,
    watch: Callable[[StepDone], None] | None = None,
) -> Pipeline:
    """Start a dataflow and return its handle.

    Running it again with the same ``directory`` continues exactly where it stopped, with any
    number of ``workers``; None keeps those that it had, and gives a new one 2. It uses this
    process's Spark if there is one; otherwise it starts Spark on ``master`` (default ``local[*]``)
    with ``spark_conf``. Settings of ``spark_conf`` that can change at run time apply in either
    case. ``bins`` is fixed when the directory is created.
    ``workers`` and ``isolate_workers`` override the settings of these names. ``rewind`` goes back
    to a kept checkpoint first, as ``Pipeline.load`` does. ``take_over`` fences the process that
    runs the pipeline and replaces it. ``watch`` is called with every committed step.

    Raises ``InvalidDataflow`` with all problems of the dataflow, and ``DirectoryError`` if the
    directory belongs to something else; then nothing was started.
    """
    from anabranch.coordinator.operations import LoadCheckpoint
    from anabranch.coordinator.settings import Settings

    chosen = settings or Settings()
    if workers is not None:
        chosen = replace(chosen, workers=workers)
    if isolate_workers is not None:
        chosen = replace(chosen, isolate_workers=isolate_workers)
    return start_pipeline(
        flow,
        Path(directory),
        chosen,
        bins=bins,
        master=master,
        spark_conf=spark_conf,
        take_over=take_over,
        rewind=None if rewind is None else LoadCheckpoint(rewind, accept_duplicates),
        watch=watch,
    )


def start_pipeline(
    flow: Dataflow,
    directory: Path,
    settings: Settings,
    *,
    bins: int = BINS,
    master: str | None = None,
    spark_conf: dict[str, str] | None = None,
    take_over: bool = False,
    rewind: LoadCheckpoint | None = None,
    watch: Callable[[StepDone], None] | None = None,
    reached: Reached = lambda point, step: None,
) -> Pipeline:
    """What ``run`` does, with a hook for tests and benchmarks.

    ``reached`` is called at the named points of a step: ``planned``, ``ran``, ``committed``,
    ``publishing <sink>``, ``published``; where Spark writes the files of a sink also ``written``,
    ``decided``, ``placed`` and ``told <sink>``.
    """
    from anabranch.pipeline import Pipeline
    from anabranch.task.worker_home import homes_of

    directory = directory.absolute()
    if not take_over:
        _leadership(directory).check_free()
    node = build_node(
        flow,
        directory=directory,
        bins=bins,
        master=master,
        spark_conf=spark_conf,
        grace_seconds=settings.grace_seconds,
        homes=homes_of(directory, settings.homes, isolated=settings.isolate_workers),
        reached=reached,
    )
    driver = _driver(
        directory, settings, node, take_over=take_over, rewind=rewind, watch=watch, reached=reached
    )
    driver.start()
    pipeline = Pipeline(directory, driver, node, settings)
    driver.wait_open()
    failure = driver.failure()
    if failure is not None:
        driver.wait()
        raise failure
    return pipeline


def serve(
    flow: str,
    *,
    directory: Path,
    settings: Settings,
    master: str | None = None,
    spark_conf: dict[str, str] | None = None,
    bins: int = BINS,
    inline: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    take_over: bool = False,
    rewind: int | None = None,
    accept_duplicates: bool = False,
    watch: Callable[[StepDone], None] | None = None,
) -> Served:
    """Run the dataflow of a Python file and serve it over HTTP, as ``anabranch run`` does.

    Unless ``inline``, the node is a separate process: it outlives this one for a while, and a
    restarted coordinator finds it and continues.
    """
    from anabranch.coordinator.operations import LoadCheckpoint
    from anabranch.http.guard import check_access
    from anabranch.http.serving import served
    from anabranch.http.token import forget_token_variable
    from anabranch.node.flow_code import code_of, load_flow
    from anabranch.node.process import NodeCommand, NodeProcess
    from anabranch.store.access import open_directory
    from anabranch.task.worker_home import homes_of

    check_access(host, token)
    forget_token_variable()
    path = directory.absolute()
    open_directory(path)
    request = None if rewind is None else LoadCheckpoint(rewind, accept_duplicates)
    nodes: ThreadedNode | NodeProcess
    if inline:
        nodes = build_node(
            load_flow(flow),
            directory=path,
            bins=bins,
            master=master,
            spark_conf=spark_conf,
            grace_seconds=settings.grace_seconds,
            homes=homes_of(path, settings.homes, isolated=settings.isolate_workers),
        )
    else:
        command = NodeCommand(
            flow,
            path,
            master=master,
            conf=tuple((spark_conf or {}).items()),
            bins=bins,
            grace_seconds=settings.grace_seconds,
            homes=settings.homes,
            isolate_workers=settings.isolate_workers,
        )
        nodes = NodeProcess(command, settings.deadlines.start_node)
    driver = _driver(
        path,
        settings,
        nodes,
        code=None if inline else code_of(flow),
        take_over=take_over,
        rewind=request,
        watch=watch,
    )
    return served(driver, path, host, port, token, settings.query_seconds)


def _driver(
    directory: Path,
    settings: Settings,
    nodes: Nodes,
    *,
    code: str | None = None,
    take_over: bool,
    rewind: LoadCheckpoint | None,
    watch: Callable[[StepDone], None] | None,
    reached: Reached = lambda point, step: None,
) -> Driver:
    from anabranch.coordinator.driver import Driver
    from anabranch.coordinator.machine import Machine

    machine = Machine(
        settings, code=code, take_over=take_over, directory=str(directory), rewind=rewind
    )
    return Driver(machine, _leadership(directory), nodes, watch, reached)


def _leadership(directory: Path) -> Leadership:
    from anabranch.journal.file_directory import FileDirectory
    from anabranch.journal.leadership import Leadership

    return Leadership(FileDirectory(directory / "journal"))


def build_node(
    flow: Dataflow,
    *,
    directory: str | os.PathLike[str],
    bins: int = BINS,
    master: str | None = None,
    spark_conf: dict[str, str] | None = None,
    code: str | None = None,
    grace_seconds: float = 120.0,
    homes: Homes | None = None,
    reached: Reached = lambda point, step: None,
) -> ThreadedNode:
    """Build a node for a dataflow, with Spark, in this process. It opens nothing yet.

    ``code`` identifies the dataflow, by default the hash of the pickled dataflow. Raises
    ``InvalidDataflow`` with all problems of the dataflow.
    """
    from anabranch.dataflow.validate import validate
    from anabranch.http.token import forget_token_variable
    from anabranch.node.core import NodeCore
    from anabranch.node.preflight import check_before_spark
    from anabranch.node.threads import ThreadedNode
    from anabranch.records.bin_set import bin_bits
    from anabranch.spark.analyzer import SparkAnalyzer
    from anabranch.spark.code import dump_code, save_program
    from anabranch.spark.frames import SparkFrames
    from anabranch.spark.jvm import on_jvm_death
    from anabranch.spark.queries.query import SparkQueries
    from anabranch.spark.session import open_session, running_session
    from anabranch.spark.sources.opening import SparkSources, with_schemas
    from anabranch.spark.step.plane import SparkPlane
    from anabranch.store.access import check_not_open_to_all, open_directory
    from anabranch.task.program import Program

    bin_bits(bins)
    path = Path(directory).absolute()
    check_not_open_to_all(path)
    forget_token_variable()
    running = running_session() is not None
    check_before_spark(flow.graph(), path, dump_code, is_running=running)
    spark = open_session(master, spark_conf)
    typed = validate(with_schemas(flow.graph(), spark), SparkAnalyzer(spark))
    program = Program(typed, bins)
    open_directory(path)
    pickled = save_program(path, program)
    sources = SparkSources(spark, path)
    core = NodeCore(
        program,
        path,
        SparkPlane(spark, program, path, pickled, sources, homes),
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
    return ThreadedNode(core, SparkQueries(spark, path), on_jvm_death)
