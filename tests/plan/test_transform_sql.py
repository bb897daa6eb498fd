"""The SQL around a transform: what its function gets, and how its rows are told apart."""

from __future__ import annotations

import pytest

from anabranch.dataflow.types.schema import parse_schema
from anabranch.plan.boundary import Boundary, Seats
from anabranch.plan.lower import lower
from anabranch.plan.sql import Crossing
from anabranch.plan.transform_sql import content_hash, inflow, outflow
from tests.plan import flows


@pytest.mark.parametrize(
    ("ddl", "parts"),
    [
        ("a int, b string", ["`a` is null, `a`", "`b` is null, `b`"]),
        ("`x y` date", ["`x y` is null, `x y`"]),
        ("d double, f float", ["to_json(struct(`d`)", "to_json(struct(`f`)"]),
        ("m map<string,int>, s struct<a:int>, l array<int>", ["struct(`m`)", "struct(`s`)"]),
        ("c string collate UTF8_LCASE", ["to_json(struct(`c`)"]),
    ],
)
def test_a_hash_of_the_content_tells_nulls_and_what_spark_takes_for_equal(
    ddl: str, parts: list[str]
) -> None:
    text = content_hash(parse_schema(ddl))
    for part in parts:
        assert part in text


def test_inputs_of_a_transform_have_an_order_of_one_length() -> None:
    physical = lower(flows.typed(flows.transform_of_a_union()))
    boundary = Boundary(physical, physical.levels[2])
    crossing = Crossing(boundary, Seats((("r2", 0, (0,)),)))
    (outer,) = boundary.transforms
    texts = [
        inflow(crossing, outer, edge, "t", by_jvm=edge.producer == 0).text for edge in outer.inputs
    ]
    arrays = [text.partition("array(")[2].partition(")) as _ord")[0] for text in texts]
    assert [len(array.split(", ")) for array in arrays] == [5, 5, 5]
    assert arrays[0].endswith("monotonically_increasing_id(), 0L, 0L")
    assert arrays[1].endswith("_ab_d0, 0L")
    assert arrays[2].endswith("_ab_d0, _ab_d1")
    assert ["_ab_from" in text for text in texts] == [False, True, True]


def test_what_a_function_gives_without_order_is_taken_as_it_is() -> None:
    physical = lower(flows.typed(flows.transform_behind_a_region()))
    (transform,) = physical.transforms
    text = outflow(physical, transform, "t")
    number = transform.id
    assert text == (f"select `customer` as _ab_p{number}_0, `total` as _ab_p{number}_1 from t")
