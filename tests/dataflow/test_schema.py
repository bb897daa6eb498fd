from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.types.schema import (
    COLLATION,
    COMMENT,
    parse_schema,
    to_ddl,
    type_text,
    type_to_ddl,
)
from anabranch.errors import InvalidSchema

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("byte", pa.int8()),
        ("smallint", pa.int16()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("INTEGER", pa.int32()),
        ("bigint", pa.int64()),
        ("Long", pa.int64()),
        ("float", pa.float32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ltz", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        ("void", pa.null()),
        ("decimal", pa.decimal128(10, 0)),
        ("dec(5)", pa.decimal128(5, 0)),
        ("numeric( 38 , 38 )", pa.decimal128(38, 38)),
        ("array<int>", pa.list_(pa.int32())),
        ("array<array<string>>", pa.list_(pa.list_(pa.string()))),
        ("map<string,double>", pa.map_(pa.string(), pa.float64())),
        ("struct<>", pa.struct([])),
        ("struct<x:int,y date>", pa.struct([("x", pa.int32()), ("y", pa.date32())])),
        (
            "array<struct<x:int,y:map<string,double>>>",
            pa.list_(pa.struct([("x", pa.int32()), ("y", pa.map_(pa.string(), pa.float64()))])),
        ),
        (
            "struct < `a b` : int not null >",
            pa.struct([pa.field("a b", pa.int32(), nullable=False)]),
        ),
    ],
)
def test_each_type_is_read(text: str, type_: pa.DataType) -> None:
    assert parse_schema(f"a {text}") == pa.schema([pa.field("a", type_)])


def test_columns_keep_names_order_and_nullability() -> None:
    schema = parse_schema(
        "Id bigint NOT NULL, `unit ``price` decimal(10,2)  comment 'it''s net',\n"
        '1st string comment "a\\nb" -- the first\n, /* last, */ select int'
    )
    assert schema.names == ["Id", "unit `price", "1st", "select"]
    assert [f.nullable for f in schema] == [False, True, True, True]
    assert schema.field(1).metadata == {COMMENT: b"it's net"}
    assert schema.field(2).metadata == {COMMENT: b"a\nb"}


def test_a_colon_may_stand_between_name_and_type() -> None:
    assert parse_schema("a: int, b : string") == parse_schema("a int, b string")


def test_a_collation_is_kept_and_the_default_one_is_none() -> None:
    schema = parse_schema("a string collate UNICODE_CI, b string collate utf8_binary, c string")
    assert [f.metadata for f in schema] == [{COLLATION: b"UNICODE_CI"}, None, None]
    nested = parse_schema("a array<string collate UNICODE_CI>").field(0).type
    assert nested.value_field.metadata == {COLLATION: b"UNICODE_CI"}
    assert type_to_ddl(nested) == "array<string collate UNICODE_CI>"


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("a", 2, 'expected the type of column "a", but the text ends'),
        ("double", 7, 'expected the type of column "double", but the text ends'),
        ("a int,", 7, "expected a column name, but the text ends"),
        ("a int b int", 7, "expected a comma or the end, not 'b'"),
        ("a, b int", 2, "expected the type of column \"a\", not ','"),
        ("1 int", 1, "expected a column name, not '1'"),
        ("`` int", 1, "expected a column name, not '``'"),
        ("a-b int", 2, "'-' is not allowed here"),
        ("é int", 1, "'é' is not allowed here"),
        ("a.b int", 2, "'.' is not allowed here"),
        ("a strin", 3, 'column "a" has type "strin", which is not supported'),
        ("a interval day to second", 3, 'column "a" has type "interval", which is not supported'),
        ("a varchar(5)", 3, 'column "a" has type "varchar", which is not supported'),
        ("a decimal(39,0)", 3, "decimal(39,0) does not exist"),
        ("a decimal(0)", 3, "decimal(0,0) does not exist"),
        ("a decimal(3,5)", 3, "decimal(3,5) does not exist"),
        ("a decimal(x)", 11, "expected a number, not 'x'"),
        ("a decimal(3", 12, 'expected ")", but the text ends'),
        ("a array", 8, 'expected "<" after array, but the text ends'),
        ("a array<int", 12, 'expected ">" to end the array, but the text ends'),
        ("a map<int>", 10, "expected a comma and the type of the values, not '>'"),
        ("a int not", 10, 'expected "null", but the text ends'),
        ("a int null", 7, "expected a comma or the end, not 'null'"),
        ("a int comment x", 15, "expected a quoted comment, not 'x'"),
        ("a int comment 'x' not null", 19, "expected a comma or the end, not 'not'"),
        ("a string collate", 17, "expected a collation, but the text ends"),
        ("a void not null", 8, "void cannot be not null"),
        ("a map<void,int>", 7, "void cannot be not null"),
        ("s struct<x:int,X:int>", 16, 'the struct has two fields "X"'),
    ],
)
def test_a_wrong_text_is_refused_at_its_place(text: str, place: int, what: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_schema(text)
    assert caught.value.what == f"The schema cannot be read: {what}"
    assert caught.value.where == f'character {place} of "{text}"'
    assert caught.value.do


@pytest.mark.parametrize(
    ("text", "do"),
    [
        ("a bool", 'Use "boolean".'),
        ("a text", 'Use "string".'),
        ("a varchar(5)", 'Use "string".'),
        ("a float64", 'Use "double".'),
        ("a-b int", "Put the name in backquotes."),
    ],
)
def test_the_error_says_what_to_write_instead(text: str, do: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_schema(text)
    assert caught.value.do == do


@pytest.mark.parametrize("text", ["", "  \n ", "-- nothing"])
def test_a_schema_needs_columns(text: str) -> None:
    with pytest.raises(InvalidSchema, match="The schema has no columns"):
        parse_schema(text)


def test_a_schema_is_a_text() -> None:
    with pytest.raises(TypeError, match="not list"):
        parse_schema(["a int"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type_", "instead"),
    [
        (pa.large_string(), "Use string."),
        (pa.uint64(), "Use decimal(20,0)."),
        (pa.uint8(), "Use the next wider signed integer."),
        (pa.timestamp("ns"), 'Use timestamp("us", tz="UTC") or timestamp("us").'),
        (pa.timestamp("us", tz="Europe/Rome"), 'Use timestamp("us", tz="UTC") or timestamp("us").'),
        (pa.dictionary(pa.int32(), pa.string()), "Use the type of its values."),
        (pa.list_(pa.float16()), "Use float."),
        (pa.duration("us"), "Use bigint (a number of microseconds, say)."),
        (pa.decimal128(5, -2), None),
        (pa.decimal256(50, 2), None),
    ],
)
def test_other_arrow_types_are_refused(type_: pa.DataType, instead: str | None) -> None:
    with pytest.raises(InvalidSchema, match=r"Type .* is not supported") as caught:
        type_to_ddl(type_)
    assert caught.value.do
    assert instead is None or caught.value.do == instead


def test_a_type_without_a_spark_name_is_shown_by_its_arrow_name() -> None:
    assert type_text(pa.int64()) == "bigint"
    assert type_text(pa.duration("us")) == "duration[us]"


def test_ddl_is_written_in_one_form() -> None:
    text = "a STRUCT<x: INT NOT NULL, `y z`: ARRAY<LONG>> NOT NULL COMMENT 'it''s \\\\'"
    assert to_ddl(parse_schema(text)) == (
        "a struct<x:int not null,`y z`:array<bigint>> not null comment 'it\\'s \\\\'"
    )


names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6
) | st.sampled_from(["a", "A", "select", "`", "1", "1a", "not", "comment"])
simple = st.sampled_from(
    [
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32(), UTC, pa.timestamp("us"), pa.null()),
    ]
)
decimals = st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))
)


@st.composite
def fields(draw: st.DrawFn, types: st.SearchStrategy[pa.DataType]) -> pa.Field:
    type_ = draw(types)
    metadata = {}
    if pa.types.is_string(type_) and draw(st.booleans()):
        metadata[COLLATION] = b"UNICODE_CI"
    if draw(st.booleans()):
        metadata[COMMENT] = draw(st.text(max_size=5)).encode()
    nullable = pa.types.is_null(type_) or draw(st.booleans())
    return pa.field(draw(names), type_, nullable=nullable, metadata=metadata or None)


def nested(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    lists = types.map(lambda t: pa.list_(pa.field("element", t)))
    keys = types.filter(lambda t: not pa.types.is_null(t))
    maps = st.tuples(keys, types).map(lambda kv: pa.map_(*kv))
    structs = st.lists(fields(types), max_size=3, unique_by=lambda f: f.name.lower())
    return lists | maps | structs.map(pa.struct)


types = st.recursive(simple | decimals, nested, max_leaves=6)
schemas = st.lists(fields(types), min_size=1, max_size=4).map(pa.schema)


@given(schemas)
def test_text_and_back_gives_the_same_schema(schema: pa.Schema) -> None:
    assert parse_schema(to_ddl(schema)).equals(schema, check_metadata=True)


@given(st.text(st.sampled_from(list("ab1 ,:<>()`'\"\\-/*.\n")), max_size=20) | st.text(max_size=8))
def test_any_text_is_a_schema_or_an_invalid_schema(text: str) -> None:
    for candidate in (text, f"a {text}", f"a struct<{text}>", f"a array<{text}", f"a int{text}"):
        try:
            schema = parse_schema(candidate)
        except InvalidSchema:
            continue
        assert parse_schema(to_ddl(schema)).equals(schema, check_metadata=True)
