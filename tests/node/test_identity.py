"""Whether a dataflow still fits what its directory holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.errors import ChangedDataflow
from anabranch.node.identity import check_sources, fitting, shapes
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Input
from anabranch.records.run_list import Listed, RunInfo
from anabranch.sinks.memory import MemorySink
from anabranch.task.program import Program
from tests.node.shop import program, scripted

HERE = Path("/pipelines/shop")


def add(key: Any, row: Any, total: Any) -> Any:
    return None, row.amount


def flow(
    *,
    name: str = "shop",
    source: str = "orders",
    region: str = "by-customer",
    key: str = "customer",
    state: str | None = "total bigint",
    operators: tuple[str, ...] = ("map", "count"),
    what: str = "count(*)",
) -> Dataflow:
    made = Dataflow(name)
    keyed = made.source(source, scripted()).key_distribute(region, key)
    if "map" in operators:
        mapped = keyed.stateful_map("map", add, state=state, output="total bigint")
        mapped.sink("mapped", MemorySink())
    if "count" in operators:
        keyed.aggregate("count", n=what).sink("counted", MemorySink())
    if "new" in operators:
        keyed.aggregate("new", n="count(*)").sink("added", MemorySink())
    return made


def kept(made: Program, live: int = 3) -> tuple[OperatorState, ...]:
    """States in which every operator of a program has a run and so many keys."""
    return tuple(
        OperatorState(
            shape,
            (
                Listed(
                    RunInfo(f"run/{shape.operator}/1", shape.operator, live, 9, "00000000"),
                    BinSet.of([0]),
                ),
            ),
            (live,) + (0,) * 7,
        )
        for shape in shapes(made)
    )


def test_shapes_say_what_must_not_change() -> None:
    found = {s.operator: (s.kind, s.region, s.keys, s.state) for s in shapes(program(flow()))}
    assert found == {
        "map": ("stateful_map", "by-customer", "customer string", "total bigint"),
        "count": ("aggregate(n=count)", "by-customer", "customer string", "n bigint"),
    }


def test_without_state_every_operator_starts_empty() -> None:
    found = fitting(program(flow()), (), HERE)
    assert [(s.operator, s.runs, s.live) for s in found] == [
        ("map", (), (0,) * 8),
        ("count", (), (0,) * 8),
    ]


def test_the_same_dataflow_goes_on_with_its_state() -> None:
    made = program(flow())
    states = kept(made)
    assert fitting(program(flow()), states, HERE) == states


def test_a_new_operator_starts_empty_beside_the_others() -> None:
    states = kept(program(flow()))
    found = fitting(program(flow(operators=("map", "count", "new"))), states, HERE)
    assert found[:2] == states
    assert (found[2].operator, found[2].runs, sum(found[2].live)) == ("new", (), 0)


CHANGES: list[tuple[Callable[[], Dataflow], str]] = [
    (
        lambda: flow(state="total double"),
        "'map' has another state schema .* 'total double' instead of 'total bigint'",
    ),
    (lambda: flow(state="total bigint, n int"), "'map' has another state schema"),
    (lambda: flow(state=None), "'map' has another state schema"),
    (lambda: flow(region="other"), "has another region .*'other' instead of 'by-customer'"),
    (lambda: flow(key="amount"), "has another key "),
    # Both keep a bigint, but a maximum cannot go on with a count.
    (lambda: flow(what="max(amount)"), "'count' has another kind .*n=max.* instead of .*n=count"),
    (lambda: flow(what="avg(amount)"), "'count' has another kind"),
    (lambda: flow(operators=("count",)), r"Operator 'map' is gone .* \(3 keys\)"),
]


@pytest.mark.parametrize(("changed", "said"), CHANGES, ids=range(len(CHANGES)))
def test_a_changed_operator_is_refused_by_name(changed: Callable[[], Dataflow], said: str) -> None:
    states = kept(program(flow()))
    with pytest.raises(ChangedDataflow, match=said) as got:
        fitting(program(changed()), states, HERE)
    assert str(HERE) in str(got.value)
    assert "Nothing was changed" in str(got.value)


def test_an_operator_without_keys_may_go() -> None:
    states = kept(program(flow()), live=0)
    found = fitting(program(flow(operators=("count",))), states, HERE)
    assert [state.operator for state in found] == ["count"]


def test_a_source_that_was_read_may_not_go() -> None:
    read = (Input("orders", (), msgspec.Raw(b"{}")),)
    check_sources(program(flow()), read, HERE)
    check_sources(program(flow(source="sales")), (), HERE)
    with pytest.raises(ChangedDataflow, match="Source 'orders' is gone"):
        check_sources(program(flow(source="sales")), read, HERE)
