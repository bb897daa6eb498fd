from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.errors import InvalidSchema
from anabranch.records.layout import Layout, may_be_large
from tests.runs.state_model import KINDS, VALUES, key_schema


def test_columns_of_a_run() -> None:
    keys = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.string())])
    layout = Layout(keys, pa.schema([("n", pa.int64())]))
    assert layout.schema.names == ["hash", "k_id", "k_n", "v_n", "tombstone"]
    assert [str(kind) for kind in layout.schema.types] == [
        "uint64",
        "int64",
        "string",
        "int64",
        "bool",
    ]
    assert [column.nullable for column in layout.schema] == [False, True, True, True, False]
    assert layout.key_columns == [1, 2]
    assert layout.value_columns == [3]
    assert layout.tombstone_column == 4


def test_columns_of_a_run_of_every_kind() -> None:
    layout = Layout(
        key_schema("int64", "string"),
        pa.schema([("n", pa.int64())]),
        pa.schema([pa.field("n", pa.date32(), nullable=False)]),
        expires=True,
        blobs=True,
    )
    names = ["hash", "k_c0", "k_c1", "s_n", "v_n", "expiry", "blob", "tombstone"]
    assert layout.schema.names == names
    assert layout.schema.field("s_n").nullable
    assert layout.schema.field("expiry").type == pa.int64()
    assert layout.has_subkeys
    places = (layout.expiry_column, layout.blob_column, layout.tombstone_column)
    assert [names[place] for place in places] == ["expiry", "blob", "tombstone"]
    assert [names[place] for place in layout.identity_columns] == ["k_c0", "k_c1", "s_n"]
    assert [names[place] for place in layout.value_columns] == ["v_n"]
    assert [names[place] for place in layout.payload_columns] == ["v_n", "expiry", "blob"]
    only_blobs = Layout(layout.keys, layout.values, blobs=True)
    assert only_blobs.schema.names == ["hash", "k_c0", "k_c1", "v_n", "blob", "tombstone"]
    assert only_blobs.blob_column == 4
    assert not only_blobs.has_subkeys


def test_sub_keys_are_compared_exactly_too() -> None:
    with pytest.raises(InvalidSchema, match="'at' has type double"):
        Layout(key_schema("int64"), VALUES, pa.schema([("at", pa.float64())]))


def test_state_may_have_no_values() -> None:
    layout = Layout(key_schema("string"), pa.schema([]))
    assert layout.schema.names == ["hash", "k_c0", "tombstone"]
    assert layout.value_columns == []


@pytest.mark.parametrize("kinds", KINDS)
def test_keys_of_every_kind_are_accepted(kinds: tuple[str, ...]) -> None:
    assert len(Layout(key_schema(*kinds), VALUES).keys) == len(kinds)


@pytest.mark.parametrize(
    "kind",
    [
        pa.float32(),
        pa.float64(),
        pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.int64()),
        pa.duration("us"),
        pa.dictionary(pa.int32(), pa.string()),
        pa.null(),
    ],
    ids=str,
)
def test_other_keys_are_refused_by_name(kind: pa.DataType) -> None:
    for keys in (pa.schema([("k", kind)]), pa.schema([("k", pa.struct([("f", kind)]))])):
        with pytest.raises(InvalidSchema, match=r"key column 'k(\.f)?' has type") as caught:
            Layout(keys, VALUES)
        assert "key_by" in str(caught.value)


def test_a_key_needs_a_column() -> None:
    with pytest.raises(InvalidSchema, match="at least one"):
        Layout(pa.schema([]), VALUES)


def test_dictionary_state_is_refused() -> None:
    values = pa.schema([("v", pa.dictionary(pa.int32(), pa.string()))])
    with pytest.raises(InvalidSchema, match="'v' is dictionary-encoded"):
        Layout(key_schema("string"), values)


def test_what_may_be_null_inside_a_type_makes_no_difference() -> None:
    def layout(optional: bool) -> Layout:
        inner = pa.field("x", pa.int64(), nullable=optional)
        values = [
            ("struct", pa.struct([inner])),
            ("list", pa.list_(inner)),
            ("map", pa.map_(pa.string(), inner)),
        ]
        return Layout(pa.schema([("k", pa.struct([inner]))]), pa.schema(values))

    assert layout(optional=False).schema == layout(optional=True).schema


@pytest.mark.parametrize(
    ("kind", "large"),
    [
        (pa.int64(), False),
        (pa.bool_(), False),
        (pa.timestamp("us"), False),
        (pa.decimal128(38, 2), False),
        (pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.date32())]))]), False),
        (pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]), True),
        (pa.binary(), True),
        (pa.list_(pa.int64()), True),
        (pa.map_(pa.string(), pa.int64()), True),
    ],
    ids=str,
)
def test_columns_of_any_size_may_be_large(kind: pa.DataType, large: bool) -> None:
    assert may_be_large(pa.schema([("n", pa.int64()), ("v", kind)])) == large
