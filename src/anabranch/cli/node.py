"""``anabranch node``: the process that owns Spark and runs the steps of a pipeline."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.exits import Exit
from anabranch.cli.node_options import Conf, HomesDirectory, IsolateWorkers, Master, spark_settings
from anabranch.run import BINS, build_node

if TYPE_CHECKING:
    from anabranch.node.server import NodeServer
    from anabranch.node.threads import ThreadedNode
    from anabranch.store.lock import DirectoryLock

LOOK_SECONDS = 0.2
HEAR_SECONDS = 5.0


def node(
    flow: Annotated[str, typer.Argument(metavar="MODULE.py:FLOW", help="The dataflow to run.")],
    directory: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="The pipeline's directory.")
    ],
    master: Master = None,
    conf: Conf = None,
    bins: Annotated[int, typer.Option(help="Bins per region; fixed once state exists.")] = BINS,
    grace_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds to keep a file that no step needs any more.")
    ] = 120.0,
    orphan_seconds: Annotated[
        float, typer.Option(min=1, help="Exit after this many seconds without a coordinator.")
    ] = 60.0,
    homes: HomesDirectory = None,
    isolate_workers: IsolateWorkers = False,
) -> None:
    """Run a pipeline's node: Spark, sources and sinks. `anabranch run` starts it for you.

    Coordinators find it through node.json in the directory. It exits on request,
    on SIGTERM, and when no coordinator has called for a while.
    """
    from anabranch.node.address import write_node_address
    from anabranch.node.flow_code import code_of, load_flow
    from anabranch.node.process import NODE_LOCK, NodeCommand, tell_failure
    from anabranch.node.server import NodeServer
    from anabranch.store.access import open_directory
    from anabranch.store.lock import DirectoryLock
    from anabranch.task.worker_home import homes_of

    told_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told_to_end.set())
    path = directory.absolute()
    settings = spark_settings(conf)
    open_directory(path)
    lock = DirectoryLock(path, NODE_LOCK)
    try:
        lock.acquire()
        code = code_of(flow)
        running = build_node(
            load_flow(flow),
            directory=path,
            bins=bins,
            master=master,
            spark_conf=settings,
            code=code,
            grace_seconds=grace_seconds,
            homes=homes_of(path, None if homes is None else str(homes), isolated=isolate_workers),
        )
    except BaseException as error:
        tell_failure(path, error)
        raise
    command = NodeCommand(
        flow,
        path,
        bins,
        master=master,
        conf=tuple(settings.items()),
        grace_seconds=grace_seconds,
        homes=None if homes is None else str(homes),
        isolate_workers=isolate_workers,
    )
    server = NodeServer(running, running.core.boot, options=command.options())
    server.start()
    write_node_address(path, server.address)
    try:
        while not told_to_end.is_set() and server.idle_seconds() < orphan_seconds:
            if running.wait_closed(LOOK_SECONDS):
                break
        if not running.alive():
            # The coordinator polls all the time: it is to hear the reason before nobody answers.
            running.wait_heard(HEAR_SECONDS)
    finally:
        _end(path, running, server, lock)


def _end(path: Path, running: ThreadedNode, server: NodeServer, lock: DirectoryLock) -> None:
    """Release everything. The address goes last, so that others can still kill this process."""
    from anabranch.node.address import remove_node_address

    ended = False
    try:
        server.stop()
        ended = running.shut()
    finally:
        remove_node_address(path, running.core.boot)
        lock.release()
    if not ended:
        print("Ended, though a sink or a source did not return", file=sys.stderr, flush=True)
        os._exit(Exit.FAILED)
