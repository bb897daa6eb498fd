"""The node in a process of its own: found by its address, started, ended, and outliving callers."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import pyarrow as pa

from anabranch.errors import JvmDied, NodeUnreachable
from anabranch.node.address import read_node_address
from anabranch.node.client import HttpNode
from anabranch.protocol.failures import error_of, failure_of
from anabranch.protocol.node import Failure, Node
from anabranch.store.access import open_directory
from anabranch.store.files import read_file, remove_file, store_errors
from anabranch.store.lock import DirectoryLock

LOG = "node.log"
FAILED = "node-failed.json"
NODE_LOCK = "node.lock"
LAST_BYTES = 2000
LOOK_SECONDS = 0.02
END_SECONDS = 20.0
TERM_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """How the node of a pipeline is started: ``anabranch node`` with these options."""

    flow: str
    directory: Path
    bins: int
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    grace_seconds: float = 120.0
    orphan_seconds: float = 60.0
    homes: str | None = None
    isolate_workers: bool = False

    def line(self) -> list[str]:
        """The command line."""
        line = [sys.executable, "-m", "anabranch.cli.app", "node", self.flow]
        for name in ("directory", "grace_seconds", "orphan_seconds", "master", "bins", "homes"):
            if (value := getattr(self, name)) is not None:
                line += [f"--{name.replace('_', '-')}", str(value)]
        line += ["--isolate-workers"] if self.isolate_workers else []
        for name, value in self.conf:
            line += ["--conf", f"{name}={value}"]
        return line

    def options(self) -> str:
        """The hash of what makes one node another than the next, for the same pipeline.

        Its program is not in it, which has a hash of its own, nor how long it waits for a
        coordinator.
        """
        homes = None if self.homes is None else str(Path(self.homes).absolute())
        conf = sorted(f"{name}={value}" for name, value in dict(self.conf).items())
        grace = float(self.grace_seconds)
        every = (self.master, conf, self.bins, grace, homes, self.isolate_workers)
        return hashlib.sha256(msgspec.json.encode(every)).hexdigest()[:32]


class StartFailure(msgspec.Struct, frozen=True):
    """Why a node process could not start."""

    pid: int
    failure: Failure


def tell_failure(directory: Path, error: BaseException) -> None:
    """Leave word of why this process cannot be the node: whoever started it looks for it."""
    path = directory / FAILED
    with contextlib.suppress(OSError), store_errors(path, "write"):
        path.write_bytes(msgspec.json.encode(StartFailure(os.getpid(), failure_of(error))))


class NodeProcess:
    """The node of a pipeline as the coordinator's driver finds it. One thread at a time."""

    inline = False

    def __init__(self, command: NodeCommand, start_seconds: float) -> None:
        """``start_seconds`` is how long Spark may take to start."""
        self._command = command
        self._directory = command.directory
        self._start_seconds = start_seconds
        self._node: HttpNode | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def find(self, leader: int) -> Node:
        """The node whose address is in the directory, if it answers; else a new one.

        One that does not answer is ended first: it hangs, or is just starting or ending, at the
        orders of a coordinator that is gone. So is one that was started with other options.
        """
        address = read_node_address(self._directory)
        if address is not None:
            node = HttpNode(address)
            # Asked in any case: ``Fenced`` is for a leader that may not end this node either.
            with contextlib.suppress(NodeUnreachable, JvmDied):
                node.report(leader, -1, 0.0)
                if address.options == self._command.options():
                    self._node = node
                    return node
            node.close()
        return self.replace(leader, "it does not answer, or has other options")

    def replace(self, leader: int, why: str) -> Node:
        """End the node, whatever it is doing, and start another one."""
        self._end()
        return self._start(leader)

    def alive(self) -> bool:
        """Whether the node's process is there."""
        return self._process() is not None

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """Run a query on the node."""
        if self._node is None:
            raise NodeUnreachable("The node is being started", do="Ask again in a while.")
        return self._node.query(sql, rows, bytes, seconds)

    def close(self, exiting: bool) -> None:
        """Wait for a node that was told to end; leave one alone that was not."""
        process = self._process() if exiting else None
        if process is not None:
            with contextlib.suppress(psutil.Error):
                process.wait(END_SECONDS)
        if self._child is not None:
            self._child.poll()
        self._node = None

    def _start(self, leader: int) -> Node:
        open_directory(self._directory)
        remove_file(self._directory / FAILED)
        # A session of its own: it outlives this process, and Ctrl-C in a terminal is not its.
        with (self._directory / LOG).open("ab") as log:
            self._child = subprocess.Popen(
                self._command.line(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + self._start_seconds
        while time.monotonic() < deadline:
            address = read_node_address(self._directory)
            if address is not None and address.pid == self._child.pid:
                self._node = HttpNode(address)
                self._node.report(leader, -1, 0.0)
                return self._node
            if self._child.poll() is not None:
                raise self._not_started(self._child)
            time.sleep(LOOK_SECONDS)
        self._end()
        raise NodeUnreachable(
            f"The node was not ready after {self._start_seconds:g} seconds",
            where=str(self._directory / LOG),
            do="See its log for what it was doing; nothing committed is lost.",
        )

    def _not_started(self, child: subprocess.Popen[bytes]) -> Exception:
        report = read_file(self._directory / FAILED)
        with contextlib.suppress(msgspec.DecodeError):
            left = msgspec.json.decode(report or b"", type=StartFailure)
            if left.pid == child.pid:
                return error_of(left.failure)
        said = last_line(self._directory / LOG)
        return NodeUnreachable(
            f"The node ended with code {child.returncode} before it was ready"
            + (f": {said}" if said else ""),
            where=str(self._directory / LOG),
            do="See its log for the reason; nothing committed is lost.",
        )

    def _process(self) -> psutil.Process | None:
        """The node's process, if it is there and it is a node of this directory."""
        if self._child is not None and self._child.poll() is None:
            return psutil.Process(self._child.pid)
        address = read_node_address(self._directory)
        # One that is starting has no address yet, but the lock.
        held = DirectoryLock(self._directory, NODE_LOCK).holder()
        for pid in (None if address is None else address.pid, held):
            with contextlib.suppress(psutil.Error):
                process = None if pid is None else psutil.Process(pid)
                line = [] if process is None else process.cmdline()
                if "node" in line and str(self._directory) in line:
                    return process
        return None

    def _end(self) -> None:
        """End the node's process and everything that it has started."""
        process = self._process()
        self._node = None
        if process is None:
            return
        with contextlib.suppress(psutil.Error):
            tree = [process, *process.children(recursive=True)]
            process.terminate()
            _, left = psutil.wait_procs(tree, TERM_SECONDS)
            for each in left:
                with contextlib.suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(left, TERM_SECONDS)
        if self._child is not None:
            self._child.poll()


def last_line(log: Path) -> str:
    """What a log ends with: of a Python program that could not begin, the error that it met."""
    try:
        with log.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LAST_BYTES, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
