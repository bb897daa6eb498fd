"""``anabranch node`` for real: a process with Spark, led over HTTP, killed, and started again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from anabranch.coordinator.parts.sources import positions_after
from anabranch.errors import ForbiddenRelation, NodeUnreachable
from anabranch.node.address import read_node_address
from anabranch.node.client import HttpNode
from anabranch.node.flow_code import code_of
from anabranch.protocol.node import (
    CloseOrder,
    CommitOrder,
    InputLimit,
    NodeReport,
    Open,
    OpenOrder,
    Output,
    StepOrder,
    StepResult,
)
from anabranch.records.plan import Input, Plan
from anabranch.rescale.assignments import equal_shares
from tests.spark.killable import SHORT_LIVED

pytestmark = pytest.mark.spark

FLOW = Path(__file__).with_name("node_flow.py")
REFERENCE = f"{FLOW}:flow"
BINS = 8
DEADLINE = 240.0
LIMIT = InputLimit()

PAGES = [
    [("ann", 3), ("bob", 5), ("ann", 4)],
    [("cid", 1), ("ann", -7), ("bob", 2)],
    [("bob", 2), ("dee", 9)],
]


def totals(pages: Sequence[Sequence[tuple[str, int]]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for page in pages:
        for customer, amount in page:
            found[customer] = found.get(customer, 0) + amount
    return found


class NodeProcess:
    """The node's process, with everything that it starts."""

    def __init__(self, base: Path) -> None:
        self._state = base / "state"
        self._node: HttpNode | None = None
        self._log = (base / "log.txt").open("ab")
        conf = [
            part for name, value in SHORT_LIVED.items() for part in ("--conf", f"{name}={value}")
        ]
        command = [sys.executable, "-m", "anabranch.cli.app", "node", REFERENCE]
        command += ["--directory", str(self._state), "--master", "local[2]", "--bins", str(BINS)]
        self.process = subprocess.Popen(
            [*command, *conf],
            env={**os.environ, "NODE_FLOW_BASE": str(base)},
            stdout=self._log,
            stderr=self._log,
        )

    def found(self) -> HttpNode:
        """The node, once it has said where it is."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end and self.process.poll() is None:
            address = read_node_address(self._state)
            if address is not None and address.pid == self.process.pid:
                self._node = HttpNode(address)
                return self._node
            time.sleep(0.05)
        raise AssertionError(Path(self._log.name).read_text())

    def kill(self) -> None:
        """SIGKILL to the whole tree."""
        if self._node is not None:
            self._node.close()
        try:
            root = psutil.Process(self.process.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            tree = []
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        self._log.close()


class Leader:
    """A coordinator of a few lines, whose journal is a list."""

    def __init__(self, node: HttpNode) -> None:
        self.node = node
        self.opens = 0
        self.journal: list[tuple[Plan, StepResult, tuple[Input, ...]]] = []

    def until(self, wanted: Callable[[NodeReport], Any]) -> NodeReport:
        seen, end = 0, time.monotonic() + DEADLINE
        while time.monotonic() < end:
            report = self.node.report(1, seen, 5)
            assert report.failed_open is None, report.failed_open
            assert report.failed_step is None, report.failed_step
            assert report.source_failure is None, report.source_failure
            assert report.sink_failure is None, report.sink_failure
            if wanted(report):
                return report
            seen = report.version
        raise AssertionError(f"the node never said so: {report}")

    def open(self) -> NodeReport:
        self.opens += 1
        last = self.journal[-1] if self.journal else None
        order = OpenOrder(
            number=self.opens,
            pipeline="orders",
            step=len(self.journal),
            clock_ns=last[0].clock_ns if last else 0,
            states=last[1].states if last else None,
            positions=last[2] if last else (),
            pending=(),
            outputs=tuple(Output(plan.step, done.staged) for plan, done, _ in self.journal),
            published={"totals": 0},
            placement=tuple((a.region, a.workers) for a in last[0].placement) if last else (),
            limit=LIMIT,
            whole=True,
        )
        self.node.order(1, order)
        return self.until(lambda report: report.opened == order.number)

    def step(self) -> None:
        number = len(self.journal) + 1
        self.until(lambda t: t.offer and t.offer.step == number and t.offer.rows)
        placement = equal_shares(["by-customer"], BINS, 2, ())
        inputs = self.node.take(1, number)
        plan = Plan(number, 0, time.time_ns(), code_of(REFERENCE), inputs, placement, 2)
        self.node.order(1, StepOrder(plan))
        self.until(lambda t: t.done and t.done.step == number)
        result = self.node.result(1, number, 0)
        before = self.journal[-1][2] if self.journal else ()
        positions = positions_after(before, inputs)
        self.journal.append((plan, result, positions))
        self.node.order(
            1, CommitOrder(number, Output(number, result.staged), positions, LIMIT, opened=0)
        )

    def totals(self) -> dict[str, int]:
        table = self.node.query('select customer, total from "total"', 100, 1 << 20, 60)
        return {row["customer"]: row["total"] for row in table.to_pylist()}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number, page in enumerate(PAGES):
        lines = [json.dumps({"customer": c, "amount": a}) for c, a in page]
        path = tmp_path / "in" / f"{number}.json"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, ns=(number * 10**9, number * 10**9))
    return tmp_path


@pytest.fixture
def started(base: Path) -> Iterator[Callable[[], NodeProcess]]:
    processes: list[NodeProcess] = []

    def start() -> NodeProcess:
        processes.append(NodeProcess(base))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def published(base: Path) -> list[list[tuple[str, int]]]:
    steps: dict[int, list[tuple[str, int]]] = {}
    for path in sorted((base / "out").glob("step-*.json")):
        step = steps.setdefault(int(path.name.split("-")[1]), [])
        rows = map(json.loads, path.read_text().splitlines())
        step += [(row["customer"], row["total"]) for row in rows]
    return [sorted(steps[step]) for step in sorted(steps)]


@pytest.mark.timeout(600)
def test_a_node_is_led_killed_and_led_on(base: Path, started: Callable[[], NodeProcess]) -> None:
    first = started()
    leader = Leader(first.found())
    report = leader.open()
    assert report.info.code == code_of(REFERENCE)
    assert report.application.startswith("local-")
    leader.step()
    leader.step()
    assert leader.totals() == totals(PAGES[:2])
    with pytest.raises(ForbiddenRelation):
        leader.node.query("select * from json.`/etc`", 1, 1, 10)
    leader.until(lambda t: t.published == {"totals": 2})
    first.kill()
    with pytest.raises(NodeUnreachable):
        leader.node.report(1, 0, 0)

    # A coordinator says whose directory this is before a sink is opened.
    (base / "state" / "journal").mkdir(exist_ok=True)
    (base / "state" / "journal" / "identity").touch()
    second = started()
    leader.node = second.found()
    report = leader.open()
    assert report.state == Open(2)
    leader.step()
    assert leader.totals() == totals(PAGES)
    leader.node.order(1, CloseOrder(exit=True))
    assert second.process.wait(60) == 0
    assert read_node_address(base / "state") is None
    assert published(base) == [
        [("ann", 3), ("ann", 7), ("bob", 5)],
        [("ann", 0), ("bob", 7), ("cid", 1)],
        [("bob", 9), ("dee", 9)],
    ]
