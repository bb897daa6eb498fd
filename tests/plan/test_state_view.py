"""The columns that readers of state see."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.state_view import StateView, bin_ranges, reader_names
from anabranch.records.placed import OperatorShape

names = st.lists(st.sampled_from(["a", "A", "b", "_worker", "_bin", "_BIN_", "state_a", "a_"]))


def without_case(found: list[str]) -> list[str]:
    """The names that Spark can tell apart, the first of each."""
    return list({name.lower(): name for name in reversed(found)}.values())[::-1]


@given(names, names)
def test_no_two_columns_share_a_name_and_keys_keep_theirs(
    keys: list[str], values: list[str]
) -> None:
    keys, values = without_case(keys), without_case(values)
    found = reader_names([*(f"k_{name}" for name in keys), *(f"v_{name}" for name in values)])
    assert len(found) == len(keys) + len(values) + 2
    assert len({name.lower() for name in found}) == len(found)
    assert found[: len(keys)] == keys
    taken = {name.lower() for name in keys}
    if not taken & {name.lower() for name in values}:
        assert found[len(keys) : -2] == values


def test_untyped_state_is_a_text() -> None:
    shape = OperatorShape(
        "seen", "stateful_map", "r", "customer string", "state binary", packed=("state",)
    )
    view = StateView(shape, (), (0, 1), 0)
    assert [(column.name, str(column.type)) for column in view.schema()] == [
        ("customer", "string"),
        ("state", "string"),
        ("_worker", "int32"),
        ("_bin", "int32"),
    ]
    typed = StateView(
        OperatorShape("seen", "stateful_map", "r", "c string", "state binary"), (), (0,), 0
    )
    assert str(typed.schema().field("state").type) == "binary"


def test_parts_of_an_aggregate_have_plain_names_and_keys_keep_theirs() -> None:
    def names(kind: str, *stored: str) -> list[str]:
        shape = OperatorShape("totals", kind, "r", "k string", "n bigint")
        return StateView(shape, (), (0,), 0).names(stored)[:-2]

    kept = names("aggregate(p=last)", "k_a/b", "v_p", "v_p/seen", "v_p_seen")
    assert kept == ["a/b", "p", "p_seen", "state_p_seen"]
    assert names("stateful_map", "v_p/seen") == ["p/seen"]


@given(st.integers(0, 10).map(lambda bits: 1 << bits), st.integers(1, 50))
def test_ranges_cover_all_bins_once(bins: int, parts: int) -> None:
    ranges = bin_ranges(bins, parts)
    assert len(ranges) == min(bins, parts)
    assert [number for part in ranges for number in part] == list(range(bins))
    sizes = [len(part) for part in ranges]
    assert max(sizes) - min(sizes) <= 1
