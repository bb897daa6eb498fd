"""A region task: what it writes, under which names, and what it reports."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import UserFunctionFailed
from anabranch.messages import (
    Acquire,
    Attempt,
    Barrier,
    Collect,
    Control,
    Hold,
    Load,
    Message,
    Prefetch,
    Report,
    in_order,
)
from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Rows
from anabranch.records.bins import BinSet
from anabranch.records.run_list import RunList
from anabranch.runs.region_state import RegionState
from anabranch.sinks.memory import MemorySink
from anabranch.sinks.staging import read_staged
from anabranch.task.program import Program
from anabranch.task.region_task import RegionTask, TaskResult
from anabranch.task.task_place import TaskPlace
from anabranch.task.worker_home import Homes
from anabranch.testing.plane.chains import hashes_of
from tests.node.shop import BINS, make_program, program, remember, scripted, shop

READ = (Attempt(0, "orders", 0, "aa"),)
EVERY = BinSet.every(BINS)


@pytest.fixture
def made(tmp_path: Path) -> Program:
    return make_program(tmp_path / "out", MemorySink())


def arrived(pairs: Sequence[tuple[str | None, int]]) -> Rows:
    """Orders as they reach the first region."""
    keys = pa.table({"customer": pa.array([pair[0] for pair in pairs], pa.string())})
    values = keys.append_column("amount", pa.array([pair[1] for pair in pairs], pa.int64()))
    zeros = np.zeros(len(pairs), dtype=np.int64)
    order = RowOrder((zeros, np.arange(len(pairs), dtype=np.int64), zeros))
    return Rows(values, hashes_of(keys), keys, order)


def task(
    made: Program,
    store: Path,
    *,
    step: int = 1,
    runs: RunList = (),
    live: tuple[int, ...] = (0,) * BINS,
    attempt: str | None = None,
) -> RegionTask:
    messages = (Load("seen", runs, live), Barrier(step))
    control = Control(1, 0, "by-customer", 0, EVERY, messages)
    place = TaskPlace(step, 0, Attempt(1, "by-customer", 0, attempt or secrets.token_hex(16)))
    return RegionTask(made, store, control, place)


def run(made: Program, store: Path, pairs: Sequence[Any], **more: Any) -> TaskResult:
    mapped = next(iter(made.operators))
    return task(made, store, **more).run({mapped: [arrived(pairs)]}, READ)


def files(report: Report) -> list[str]:
    runs = [listed.run.name for state in report.states for listed in state.runs]
    return [*runs, *(file.name for file in report.staged)]


def content(store: Path, made: Program, report: Report) -> tuple[Any, Any]:
    """State and staged rows, as whoever reads them finds them."""
    (state,) = report.states
    operator = RegionState("seen", made.layouts["seen"], state.runs, store, BINS, EVERY, state.live)
    (file,) = report.staged
    data = read_staged(store, file)
    return operator.scan().to_pylist(), pa.ipc.open_stream(data).read_all().to_pylist()


PAIRS = [("ann", 3), ("bob", 5), (None, 1), ("ann", 4)]


def test_two_attempts_never_share_a_name_and_do_the_same(made: Program, tmp_path: Path) -> None:
    one, other = (run(made, tmp_path, PAIRS).report for _ in range(2))
    assert not set(files(one)) & set(files(other))
    assert content(tmp_path, made, one) == content(tmp_path, made, other)
    assert one.tallies == other.tallies
    assert [s.live for s in one.states] == [s.live for s in other.states]
    sizes = [[(f.rows, f.bytes, f.checksum) for f in report.staged] for report in (one, other)]
    assert sizes[0] == sizes[1]
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.arrow") if p.is_file()}
    assert written == {*files(one), *files(other)}


def test_files_are_named_after_step_revision_group_level_worker_and_attempt(
    made: Program, tmp_path: Path
) -> None:
    report = run(made, tmp_path, PAIRS, step=7, attempt="f00d").report
    assert files(report) == [
        "run/seen/000000000007-0-by-customer-1-0-f00d.arrow",
        "stage/rows/000000000007-0-by-customer-1-0-f00d.arrow",
    ]
    assert report.attempt == Attempt(1, "by-customer", 0, "f00d")
    assert report.consumed == READ


def test_state_and_output_are_those_of_the_operator(made: Program, tmp_path: Path) -> None:
    result = run(made, tmp_path, PAIRS)
    state, staged = content(tmp_path, made, result.report)
    assert {row["k_customer"]: msgspec.msgpack.decode(row["v_state"]) for row in state} == {
        "ann": [3, 4],
        "bob": [5],
        None: [1],
    }
    found = [(row["customer"], row["amounts"]) for row in staged]
    assert set(found) == {("ann", "3"), ("bob", "5"), (None, "1"), ("ann", "3+4")}
    assert found.index(("ann", "3")) < found.index(("ann", "3+4"))
    (emitted,) = result.emitted.values()
    assert emitted.values.to_pylist() == staged
    (counted,) = [t for t in result.report.tallies if t.place == "sink rows"]
    assert counted.rows == (4,)
    assert sum(result.report.states[0].live) == 3
    assert {"operator", "lookup", "write", "stage"} <= set(result.report.seconds)


def test_r2_the_state_of_a_step_is_there_before_the_first_row_of_the_next(
    made: Program, tmp_path: Path
) -> None:
    first = run(made, tmp_path, PAIRS).report.states[0]
    report = run(made, tmp_path, [("ann", -7)], step=2, runs=first.runs, live=first.live).report
    state, staged = content(tmp_path, made, report)
    assert [row["amounts"] for row in staged] == ["3+4+-7"]
    assert {row["k_customer"] for row in state} == {"bob", None}
    assert sum(report.states[0].live) == 2


@pytest.mark.parametrize("given", [None, []])
def test_a_task_without_rows_writes_nothing_and_reports(
    made: Program, tmp_path: Path, given: list[Any] | None
) -> None:
    mapped = next(iter(made.operators))
    rows = {} if given is None else {mapped: [arrived(given)]}
    result = task(made, tmp_path).run(rows, READ)
    assert (result.report.states, result.report.staged, result.emitted) == ((), (), {})
    assert result.report.consumed == READ
    assert list(tmp_path.rglob("*.arrow")) == []


def test_what_arrives_is_counted_by_bin(made: Program, tmp_path: Path) -> None:
    counting = task(made, tmp_path)
    rows = arrived(PAIRS)
    counting.count("edge 0-3", rows)
    report = counting.run({}, ()).report
    (tally,) = report.tallies
    assert tally.place == "edge 0-3"
    assert sum(tally.rows) == 4


def test_a_function_that_raises_leaves_no_files(tmp_path: Path) -> None:
    def breaks(key: Any, row: Any, seen: Any) -> Any:
        if row.amount == 4:
            raise ValueError("not four")
        return remember(key, row, seen)

    made = program(shop(scripted(), MemorySink(), MemorySink(), function=breaks))
    with pytest.raises(UserFunctionFailed, match="not four"):
        run(made, tmp_path, PAIRS)
    assert list(tmp_path.rglob("*.arrow")) == []


def test_r1_rows_for_a_bin_of_somebody_else_are_refused(made: Program, tmp_path: Path) -> None:
    mapped = next(iter(made.operators))
    messages = (Load("seen", (), (0,) * BINS),)
    control = Control(1, 0, "by-customer", 0, BinSet(), messages)
    place = TaskPlace(1, 0, Attempt(1, "by-customer", 0, "aa"))
    with pytest.raises(ValueError, match=r"R1: bin \d is not owned here"):
        RegionTask(made, tmp_path, control, place).run({mapped: [arrived(PAIRS)]}, ())


def split(key: Any, row: Any, state: Any) -> Any:
    return [(key.customer, row.amount)] * 2, None


def positive(key: Any, row: Any, state: Any) -> Any:
    return ((key.customer, row.amount) if row.amount > 0 else None), None


def united() -> Program:
    """Two inputs of one operator in one task, one of which has passed one operator more."""
    flow = ab.Dataflow("united")
    orders = flow.source("orders", scripted()).key_distribute("by-customer", "customer")
    output = "customer string, amount bigint"
    once = orders.stateful_map("once", split, output=output)
    twice = once.stateful_map("twice", positive, output=output)
    last = once.union(twice).stateful_map("last", split, output=output)
    last.key_distribute("by-amount", "amount").stateful_map(
        "end", split, output="customer string, amount bigint"
    ).sink("rows", MemorySink())
    return program(flow)


def test_r9_the_depth_of_an_order_does_not_depend_on_which_inputs_have_rows(tmp_path: Path) -> None:
    made = united()
    [last] = [id for id, operator in made.operators.items() if operator.name == "last"]
    [level] = [each for each in made.physical.levels[1:] if last in each.groups[0].operators]
    assert sorted(edge.digits for edge in level.inputs) == [1, 2]
    rows = arrived([("ann", 3)])
    assert rows.order is not None
    shallow, deep = (replace(rows, order=rows.order.padded(digits)) for digits in (1, 2))
    for parts in ([shallow], [deep], [shallow, deep]):
        messages = (Load("last", (), (0,) * BINS), Barrier(1))
        control = Control(level.number, 0, "by-customer", 0, EVERY, messages)
        place = TaskPlace(1, 0, Attempt(level.number, "by-customer", 0, secrets.token_hex(16)))
        result = RegionTask(made, tmp_path, control, place).run({last: parts}, READ)
        order = result.emitted[last].order
        assert order is not None
        assert len(order.columns) == 3 + made.physical.digits[last] == 6


def long_names(numbers: Sequence[int]) -> list[tuple[str, int]]:
    """Orders whose state is too large to be merged as young."""
    return [(f"{number:0200d}", 1) for number in numbers]


def test_a_worker_that_moves_bins_merges_what_keeps_up_and_no_more(
    made: Program, tmp_path: Path
) -> None:
    """Copies, and much of a merge that comes due at once, would make a step of both."""
    runs: RunList = ()
    live = (0,) * BINS
    for step, numbers in enumerate([range(16_000), range(6_500)], start=1):
        report = run(made, tmp_path, long_names(numbers), step=step, runs=runs, live=live).report
        (state,) = report.states
        runs, live = state.runs, state.live
    assert [listed.run.rows for listed in runs] == [6_500, 16_000]
    merged = {}
    mapped = next(iter(made.operators))
    homes = Homes(str(tmp_path / "homes"), isolated=True)
    some = ("by-customer", 0, BinSet.of([0]))
    told: dict[str, tuple[Message, Homes | None]] = {
        "at home": (Barrier(3), homes),
        "holds still": (Hold(*some), homes),
        "copies": (Prefetch(*some), homes),
        "gains": (Acquire(*some), homes),
        "loses": (Collect(*some), homes),
        "loses nothing that is copied": (Collect(*some), None),
    }
    for case, (order, at) in told.items():
        messages = in_order([Load("seen", runs, live), order])
        control = Control(1, 0, "by-customer", 0, EVERY, messages)
        place = TaskPlace(3, 0, Attempt(1, "by-customer", 0, secrets.token_hex(16)))
        given = {mapped: [arrived(long_names(range(7_000, 8_000)))]}
        report = RegionTask(made, tmp_path, control, place, at).run(given, READ).report
        (state,) = report.states
        merged[case] = state.rows_merged
        assert ("handling" in report.seconds) == (case in {"copies", "gains"})
        assert min(report.seconds.values()) >= 0
    usual = merged.pop("at home")
    assert usual == merged.pop("loses nothing that is copied") > 16_000
    assert all(0 < rows < usual / 2 for rows in merged.values()), merged
