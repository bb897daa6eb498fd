"""The node's process, found, ended and started again; real processes, only Spark is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from anabranch.cli.exits import Exit
from anabranch.errors import Fenced, NodeUnreachable
from anabranch.node import process as module
from anabranch.node.address import read_node_address
from anabranch.node.client import HttpNode
from anabranch.node.process import NodeCommand, NodeProcess
from anabranch.protocol.node import Node
from anabranch.store.lock import DirectoryLock
from tests.node.core_shop import CoreShop
from tests.node.led import Led
from tests.node.plain_node import FLOW, PlainCommand
from tests.node.shop import BINS

WAIT = 60.0

Nodes = Callable[..., NodeProcess]


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Coordinators' views of the node of one directory; every node is ended at the end."""
    monkeypatch.setattr(module, "TERM_SECONDS", 1.0)
    here = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{here / 'src'}{os.pathsep}{here}")
    state = tmp_path / "state"
    state.mkdir()
    made: list[NodeProcess] = []
    found: list[HttpNode] = []
    monkeypatch.setattr(module, "HttpNode", lambda address: _kept(found, HttpNode(address)))

    def one(**options: object) -> NodeProcess:
        made.append(NodeProcess(PlainCommand(FLOW, state, **{"bins": BINS, **options}), WAIT))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for each in made:
        each._end()
    for node in found:
        node.close()


def _kept(found: list[HttpNode], node: HttpNode) -> HttpNode:
    found.append(node)
    return node


def pid_of(node: Node) -> int:
    assert isinstance(node, HttpNode)
    return node.address.pid


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def answers(node: Node) -> bool:
    try:
        node.report(2, -1, 0.0)
    except NodeUnreachable:
        return False
    return True


def hang(tmp_path: Path, node: Node) -> None:
    """Let the node hang in its sink."""
    led = Led(CoreShop(tmp_path), node)
    led.open()
    led.one_step()
    until((tmp_path / "hanging").exists)


def test_a_node_that_answers_is_found_again_and_ended_if_another_one_is_wanted(
    tmp_path: Path, nodes: Nodes
) -> None:
    first = nodes(conf=(("spark.a", "1"), ("spark.b", "2"))).find(1)
    same = nodes(conf=(("spark.b", "2"), ("spark.a", "1")), orphan_seconds=30.0).find(2)
    assert pid_of(same) == pid_of(first)
    with pytest.raises(Fenced):
        nodes(master="local[1]").find(1)
    assert answers(first), "one that was replaced ends nothing"
    other = nodes(master="local[1]").find(2)
    assert pid_of(other) != pid_of(first)
    assert not psutil.pid_exists(pid_of(first))


@pytest.mark.parametrize(
    "other",
    [
        {"master": "local[2]"},
        {"conf": (("spark.a", "2"),)},
        {"conf": ()},
        {"bins": 16},
        {"grace_seconds": 121.0},
        {"homes": "elsewhere"},
        {"isolate_workers": True},
    ],
)
def test_nodes_with_other_options_are_other_nodes(tmp_path: Path, other: dict[str, Any]) -> None:
    command = NodeCommand(FLOW, tmp_path, BINS, conf=(("spark.a", "1"),))
    assert replace(command, **other).options() != command.options()


@pytest.mark.parametrize(
    "other", [{"flow": "./shop.py:flow"}, {"orphan_seconds": 1.0}, {"grace_seconds": 120}]
)
def test_what_is_no_option_of_the_pipeline_does_not_count(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    command = NodeCommand(FLOW, tmp_path, BINS)
    assert replace(command, **other).options() == command.options()


def test_a_node_that_nobody_calls_ends_and_a_second_one_is_refused(
    tmp_path: Path, nodes: Nodes
) -> None:
    node = nodes(orphan_seconds=2.0).find(1)
    command = PlainCommand(FLOW, tmp_path / "state", BINS)
    second = subprocess.Popen(command.line(), stderr=subprocess.PIPE, text=True)
    # The first one is called for as long as the second takes to start.
    until(lambda: answers(node) and second.poll() is not None)
    _, printed = second.communicate()
    assert (second.returncode, "[directory.in_use]" in printed) == (Exit.REFUSED, True), printed
    assert psutil.Process(pid_of(node)).wait(WAIT) == Exit.DONE
    assert read_node_address(tmp_path / "state") is None


def test_a_node_whose_sink_hangs_ends_when_it_is_told_to(tmp_path: Path, nodes: Nodes) -> None:
    (tmp_path / "hang").write_text("0.1")
    node = nodes().find(1)
    hang(tmp_path, node)
    process = psutil.Process(pid_of(node))
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(WAIT) == Exit.FAILED
    assert read_node_address(tmp_path / "state") is None
    lock = DirectoryLock(tmp_path / "state", "node.lock")
    lock.acquire()
    lock.release()


def test_a_node_that_is_ending_is_ended_by_the_coordinator_that_comes(
    tmp_path: Path, nodes: Nodes
) -> None:
    (tmp_path / "hang").write_text("3600")
    node = nodes().find(1)
    hang(tmp_path, node)
    os.kill(pid_of(node), signal.SIGTERM)
    until(lambda: not answers(node))
    assert psutil.pid_exists(pid_of(node))
    (tmp_path / "hang").unlink()
    other = nodes().find(2)
    assert pid_of(other) != pid_of(node)
    assert answers(other)


def test_a_node_that_is_starting_is_ended_by_the_coordinator_that_comes(
    tmp_path: Path, nodes: Nodes
) -> None:
    (tmp_path / "slow").touch()
    dead = NodeProcess(PlainCommand(FLOW, tmp_path / "state", BINS), 0.0)
    dead._end = lambda: None  # type: ignore[method-assign]
    with pytest.raises(NodeUnreachable):
        dead.find(1)
    until((tmp_path / "starting").exists)
    assert dead._child is not None
    (tmp_path / "slow").unlink()
    node = nodes().find(2)
    assert pid_of(node) != dead._child.pid
    dead._child.wait(WAIT)


def test_a_node_that_cannot_even_begin_says_why(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the user's that is called like one of Python's own is imported in its place."""
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "decimal.py").write_text("raise RuntimeError('not the real one')\n")
    monkeypatch.setenv("PYTHONPATH", f"{shadow}{os.pathsep}{os.environ['PYTHONPATH']}")
    with pytest.raises(NodeUnreachable, match=r"ready: RuntimeError: not the real one") as raised:
        nodes().find(1)
    assert raised.value.where is not None
    assert raised.value.where.endswith("node.log")


def test_the_last_line_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    assert module.last_line(log) == ""
    log.write_bytes(b"x" * 5000 + b"\nOne\n  Two \xff\n\n")
    assert module.last_line(log) == "Two \ufffd"
    log.write_bytes(b"\n \n")
    assert module.last_line(log) == ""
