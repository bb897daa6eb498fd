"""Lowering, on a table of dataflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.graph import MapBatchesNode, NamedNode
from anabranch.errors import InvalidDataflow
from anabranch.plan.boundary import Boundary, order_names
from anabranch.plan.lower import UNKEYED, lower
from anabranch.plan.physical import Edge, Physical, Relay, Transform
from tests.dataflow.fakes import sink
from tests.plan import flows

CUSTOMER = ["customer string"]
ROW = ["customer string", "amount double"]
TOTAL = ["customer string", "total double"]


class Way(NamedTuple):
    """An edge in a few words."""

    ends: str
    chain: str = ""
    region: str | None = None
    distributes: bool = False
    keys: list[str] = []  # noqa: RUF012 - never changed
    columns: list[str] = []  # noqa: RUF012
    arguments: list[tuple[str, str]] | None = None
    digits: int | None = None


class Floor(NamedTuple):
    """A level in a few words."""

    exchange: bool
    paths: list[Way]
    groups: dict[str, list[str]]


def columns_of(schema: pa.Schema) -> list[str]:
    return [f"{column.name} {column.type}" for column in schema]


def policy(physical: Physical, edge: Edge) -> Way:
    assert edge.digits == 0 or edge.ordered
    return Way(
        f"{name(physical, edge.producer)} → {name(physical, edge.consumer)}",
        " ".join(node.kind for node in edge.chain),
        edge.region,
        edge.distributes,
        columns_of(edge.keys),
        columns_of(edge.columns),
        None if edge.arguments is None else list(edge.arguments),
        edge.digits if edge.ordered else None,
    )


def name(physical: Physical, id: int) -> str:
    node = physical.node(id)
    if isinstance(node, Relay):
        return "relay"
    assert isinstance(node, NamedNode)
    return node.name


def floors(physical: Physical) -> list[Floor]:
    assert [level.number for level in physical.levels] == list(range(len(physical.levels)))
    assert not physical.levels[0].groups
    assert not physical.levels[0].inputs
    for number, level in enumerate(physical.levels[1:]):
        assert physical.leaving(number) == level.inputs
    assert physical.leaving(len(physical.levels) - 1) == ()
    return [
        Floor(
            level.exchange,
            [policy(physical, edge) for edge in level.inputs],
            {g.name: [name(physical, id) for id in g.operators] for g in level.groups},
        )
        for level in physical.levels[1:]
    ]


def arrives(ends: str, columns: list[str], **more: object) -> Way:
    return Way(ends, columns=columns, **more)  # type: ignore[arg-type]


def first_map(ends: str = "orders → m", region: str = "r") -> Way:
    return Way(ends, "key_by", region, True, CUSTOMER, ROW, None, 0)


TABLE: list[tuple[Callable[[], Dataflow], list[Floor]]] = [
    (
        flows.transform_of_a_source,
        [
            Floor(
                True,
                [
                    arrives("t → raw", ROW),
                    Way("t → m", "key_by", "r", True, CUSTOMER, ROW, None, 1),
                ],
                {UNKEYED: ["raw"], "r": ["m", "out"]},
            )
        ],
    ),
    (
        flows.transform_behind_a_region,
        [
            Floor(True, [first_map()], {"r": ["m"]}),
            Floor(
                True,
                [
                    Way("m → big", "where", "r", columns=TOTAL),
                    arrives("t → out", TOTAL, chain="where"),
                ],
                {"r": ["big"], UNKEYED: ["out"]},
            ),
        ],
    ),
    (
        flows.transform_of_a_union,
        [
            Floor(
                True,
                [
                    Way("orders → m", "key_by", "r", True, CUSTOMER, ROW, None, 0),
                    Way("inner → relay", columns=ROW, digits=1),
                ],
                {"r": ["m", "b"], UNKEYED: ["relay"]},
            ),
            Floor(
                True,
                [Way("outer → a", "key_by", "r2", True, CUSTOMER, [], [])],
                {"r2": ["a", "out"]},
            ),
        ],
    ),
    (
        flows.union_of_sources,
        [
            Floor(
                True,
                [
                    Way("orders → raw", "union", columns=ROW),
                    Way("more → raw", "where union", columns=ROW),
                    Way("orders → m", "union key_by", "r", True, CUSTOMER, ROW, None, 0),
                    Way("more → m", "where union key_by", "r", True, CUSTOMER, ROW, None, 0),
                ],
                {UNKEYED: ["raw", "raw"], "r": ["m", "out"]},
            )
        ],
    ),
    (
        flows.union_in_a_region,
        [
            Floor(True, [first_map("orders → m1")], {"r": ["m1"]}),
            Floor(
                False,
                [
                    Way("m1 → m2", "union", "r", False, CUSTOMER, TOTAL, None, 1),
                    Way("m1 → m2", "where union", "r", False, CUSTOMER, TOTAL, None, 1),
                ],
                {"r": ["m2", "out"]},
            ),
        ],
    ),
    (
        flows.union_of_depths,
        [
            Floor(True, [first_map("orders → m1", "r1")], {"r1": ["m1"]}),
            Floor(
                True,
                [
                    Way("m1 → m2", "key_by", "r2", True, CUSTOMER, TOTAL, None, 1),
                    Way("m1 → relay", "", "r1", columns=TOTAL),
                ],
                {"r2": ["m2"], "r1": ["relay"]},
            ),
            Floor(
                True,
                [
                    Way("orders → a", "union key_by", "r3", True, CUSTOMER, [], []),
                    Way("relay → a", "union key_by", "r3", True, CUSTOMER, [], []),
                    Way("m2 → a", "union key_by", "r3", True, CUSTOMER, [], []),
                ],
                {"r3": ["a", "out"]},
            ),
        ],
    ),
    (
        flows.batches_everywhere,
        [
            Floor(
                False,
                [Way("orders → early", "", None, columns=ROW, digits=0)],
                {UNKEYED: ["early"]},
            ),
            Floor(
                True,
                [Way("early → inside", "where key_by", "r", True, CUSTOMER, ROW, None, 1)],
                {"r": ["inside", "m", "late", "out"]},
            ),
        ],
    ),
    (flows.one_region, [Floor(True, [first_map()], {"r": ["m", "out"]})]),
    (
        flows.two_regions,
        [
            Floor(
                True,
                [Way("orders → m", "where key_by", "r1", True, CUSTOMER, ROW, None, 0)],
                {"r1": ["m"]},
            ),
            Floor(
                True,
                [Way("m → a", "key_by", "r2", True, ["name string"], [], [])],
                {"r2": ["a", "out"]},
            ),
        ],
    ),
    (
        flows.two_ordered_regions,
        [
            Floor(True, [first_map("orders → m1", "r1")], {"r1": ["m1"]}),
            Floor(
                True,
                [Way("m1 → m2", "key_by", "r2", True, CUSTOMER, TOTAL, None, 1)],
                {"r2": ["m2", "out"]},
            ),
        ],
    ),
    (
        flows.several_sinks,
        [
            Floor(True, [first_map()], {"r": ["m", "plain", "again"]}),
            Floor(
                False,
                [Way("m → some", "where select", "r", columns=["total double"])],
                {"r": ["some"]},
            ),
        ],
    ),
    (flows.chained, [Floor(True, [first_map("orders → m1")], {"r": ["m1", "m2", "out"]})]),
    (
        flows.chained_with_where,
        [
            Floor(True, [first_map("orders → m1")], {"r": ["m1"]}),
            Floor(
                False,
                [Way("m1 → m2", "where", "r", False, CUSTOMER, TOTAL, None, 1)],
                {"r": ["m2", "out"]},
            ),
        ],
    ),
    (
        flows.two_keyed_consumers,
        [
            Floor(
                True,
                [
                    Way("orders → a1", "where key_by", "r1", True, CUSTOMER, [], []),
                    Way("orders → m2", "where key_by", "r2", True, ["name string"], ROW, None, 0),
                ],
                {"r1": ["a1", "s1"], "r2": ["m2", "s2"]},
            )
        ],
    ),
    (
        flows.one_region_two_operators,
        [
            Floor(
                True,
                [
                    Way(
                        "orders → a",
                        "key_by",
                        "r",
                        True,
                        CUSTOMER,
                        ["a0 double"],
                        [("a0", "amount")],
                        0,
                    ),
                    first_map(),
                ],
                {"r": ["a", "s1", "m", "s2"]},
            )
        ],
    ),
    (
        flows.straight_to_a_sink,
        [Floor(False, [arrives("orders → out", ROW, chain="where")], {UNKEYED: ["out"]})],
    ),
    (
        flows.sink_after_distribution,
        [Floor(False, [arrives("orders → out", ROW, chain="where")], {UNKEYED: ["out"]})],
    ),
    (
        flows.sink_after_local,
        [
            Floor(True, [first_map()], {"r": ["m", "out"]}),
            Floor(
                False, [Way("m → less", "select", "r", columns=["total double"])], {"r": ["less"]}
            ),
        ],
    ),
    (
        flows.key_before_select,
        [
            Floor(
                True,
                [
                    Way(
                        "orders → a",
                        "key_by select",
                        "r",
                        True,
                        CUSTOMER,
                        ["a0 double", "a1 double"],
                        [("a0", "amount"), ("a1", "amount")],
                    )
                ],
                {"r": ["a", "out"]},
            )
        ],
    ),
    (
        flows.aggregate_after_aggregate,
        [
            Floor(True, [Way("orders → a1", "key_by", "r", True, CUSTOMER, [], [])], {"r": ["a1"]}),
            Floor(
                False,
                [Way("a1 → a2", "", "r", False, CUSTOMER, ["a0 int64"], [("a0", "n")])],
                {"r": ["a2", "out"]},
            ),
        ],
    ),
    (
        flows.order_passes_an_aggregate,
        [
            Floor(
                True,
                [
                    Way(
                        "orders → a",
                        "key_by",
                        "r",
                        True,
                        CUSTOMER,
                        ["a0 double"],
                        [("a0", "amount")],
                        0,
                    )
                ],
                {"r": ["a"]},
            ),
            Floor(
                True,
                [Way("a → m", "key_by", "r2", True, CUSTOMER, TOTAL, None, 0)],
                {"r2": ["m", "out"]},
            ),
        ],
    ),
    (
        flows.two_sources,
        [
            Floor(
                True,
                [
                    first_map(region="r1"),
                    Way("others → a", "key_by", "r2", True, ["n int64"], [], []),
                ],
                {"r1": ["m", "s1"], "r2": ["a", "s2"]},
            )
        ],
    ),
    (
        flows.keyed_and_unkeyed,
        [
            Floor(
                True,
                [
                    arrives("orders → raw", ["amount double"], chain="select"),
                    first_map(region="unkeyed"),
                ],
                {UNKEYED: ["raw"], "unkeyed": ["m"]},
            ),
            Floor(False, [Way("m → big", "where", "unkeyed", columns=TOTAL)], {"unkeyed": ["big"]}),
        ],
    ),
    (
        flows.mixed_depth,
        [
            Floor(True, [first_map(region="r1")], {"r1": ["m"]}),
            Floor(
                True,
                [
                    Way("m → big", "where", "r1", columns=TOTAL),
                    Way("m → a", "key_by", "r2", True, CUSTOMER, [], []),
                ],
                {"r1": ["big"], "r2": ["a", "out"]},
            ),
        ],
    ),
]


@pytest.mark.parametrize(("build", "wanted"), TABLE, ids=[build.__name__ for build, _ in TABLE])
def test_a_dataflow_is_lowered_to_these_levels(
    build: Callable[[], Dataflow], wanted: list[Floor]
) -> None:
    assert floors(lower(flows.typed(build()))) == wanted


def test_the_table_has_every_flow() -> None:
    assert [build for build, _ in TABLE] == flows.ALL


@pytest.mark.parametrize("build", flows.ALL, ids=lambda build: build.__name__)
def test_every_consumer_is_in_one_group_and_reached_after_its_producers(
    build: Callable[[], Dataflow],
) -> None:
    physical = lower(flows.typed(build()))
    graph = physical.graph
    nodes = (*graph.stateful(), *graph.sinks())
    mapped = [node.id for node in graph.nodes if isinstance(node, MapBatchesNode)]
    consumers = sorted([*(node.id for node in nodes), *mapped, *physical.copies])
    edges = [edge for level in physical.levels for edge in level.inputs]
    grouped = [id for level in physical.levels for g in level.groups for id in g.operators]
    straight = [id for ids in physical.direct.values() for id in ids]
    assert sorted(grouped) == consumers
    assert sorted({*straight, *(edge.consumer for edge in edges)}) == consumers
    assert sorted(edge.id for edge in edges) == list(range(1, len(edges) + 1))
    assert len({edge.place for edge in edges}) == len(edges)
    for level in physical.levels:
        for group in level.groups:
            # A task runs its operators from left to right: producers stand before consumers.
            for place, operator in enumerate(group.operators):
                after = physical.direct.get(operator, ())
                assert set(after).isdisjoint(group.operators[: place + 1])
                assert set(after) <= set(group.operators)
        moves = [e.distributes or physical.is_transform(e.producer) for e in level.inputs]
        assert level.exchange == any(moves)


def inflows(physical: Physical, transform: Transform) -> tuple[str, int, list[Way], object]:
    """A transform in a few words: name, level, its inputs, order digits that it is given."""
    paths = [policy(physical, edge) for edge in transform.inputs]
    return name(physical, transform.id), transform.level, paths, transform.given


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (
            flows.transform_of_a_source,
            [("t", 1, [arrives("orders → t", ROW, chain="where", digits=0)], 0)],
        ),
        (flows.transform_behind_a_region, [("t", 2, [arrives("m → t", TOTAL, digits=1)], 1)]),
        (
            flows.transform_of_a_union,
            [
                ("inner", 1, [arrives("more → inner", ROW, digits=0)], 0),
                (
                    "outer",
                    2,
                    [
                        arrives("orders → outer", ROW, chain="union", digits=0),
                        arrives("relay → outer", ROW, chain="union", digits=1),
                        arrives("b → outer", ROW, chain="union", digits=2),
                    ],
                    2,
                ),
            ],
        ),
    ],
)
def test_transforms_stand_before_the_level_that_gets_their_rows(
    build: Callable[[], Dataflow], wanted: list[object]
) -> None:
    physical = lower(flows.typed(build()))
    assert [inflows(physical, transform) for transform in physical.transforms] == wanted
    for transform in physical.transforms:
        assert transform in physical.transforms_before(transform.level)
        emitting = physical.emitting(transform.level - 1)
        assert {edge.producer for edge in transform.inputs} <= emitting


def test_rows_for_a_transform_bring_an_order_that_the_level_behind_does_not_need() -> None:
    physical = lower(flows.typed(flows.transform_of_a_union()))
    boundary = Boundary(physical, physical.levels[2])
    assert boundary.order == []
    assert boundary.made_order == order_names(2)
    made = {name(physical, id) for id in boundary.task_producers()}
    assert made == {"b", "relay"}
    assert {name(physical, id) for id in boundary.needed_producers()} == {
        "outer",
        "orders",
        "relay",
        "b",
    }


def test_operators_reach_their_neighbours_without_leaving_the_task() -> None:
    physical = lower(flows.typed(flows.chained()))
    named = {
        name(physical, id): [name(physical, c) for c in ids] for id, ids in physical.direct.items()
    }
    assert named == {"m1": ["m2"], "m2": ["out"]}


def test_regions_have_their_keys_and_their_operators() -> None:
    physical = lower(flows.typed(flows.two_regions()))
    found = [(r.name, columns_of(r.keys), r.operators) for r in physical.regions]
    assert found == [("r1", CUSTOMER, ("m",)), ("r2", ["name string"], ("a",))]
    assert physical.region("r2") == physical.regions[1]
    # A distribution without a stateful operator is no region.
    assert lower(flows.typed(flows.sink_after_distribution())).regions == ()


def test_the_group_of_unkeyed_sinks_cannot_be_taken_for_a_region() -> None:
    physical = lower(flows.typed(flows.keyed_and_unkeyed()))
    first = physical.levels[1].groups
    assert [(group.name, group.region) for group in first] == [
        (UNKEYED, None),
        ("unkeyed", "unkeyed"),
    ]
    flow, rows = flows.orders()
    rows.key_distribute(UNKEYED, "customer").aggregate("a", n="count(*)").sink("s", sink())
    with pytest.raises(InvalidDataflow, match="cannot be a file name"):
        flows.typed(flow)


def test_sources_and_sinks_are_listed_in_the_order_of_the_graph() -> None:
    physical = lower(flows.typed(flows.two_sources()))
    assert [node.name for node in physical.sources()] == ["orders", "others"]
    assert [node.name for node in physical.graph.sinks()] == ["s1", "s2"]
