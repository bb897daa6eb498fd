from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.sql.sql_text import (
    Call,
    identifier,
    leading_call,
    own_name,
    quote,
    quote_if_needed,
    single_call,
    split_alias,
    split_arguments,
    unquote,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("amount", "amount"),
        ("  Amount\n", "Amount"),
        ("_x1", "_x1"),
        ("`unit price`", "unit price"),
        ("`a``b`", "a`b"),
        ("`null`", "null"),
        ("amount + 1", None),
        ("a.b", None),
        ("`a`.`b`", None),
        ("``", None),
        ("1", None),
        ("1L", None),
        ("'text'", None),
        ("f(x)", None),
        ("NULL", None),
        ("true", None),
        ("current_date", None),
        ("", None),
        ("é", None),
    ],
)
def test_only_a_name_is_an_identifier(text: str, name: str | None) -> None:
    assert identifier(text) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [(" user ", "user"), ("Current_Date", "Current_Date"), ("amount", "amount"), ("`a b`", "a b")],
)
def test_a_column_has_its_own_name_also_where_a_value_has_it(text: str, name: str) -> None:
    assert own_name(text) == name


@pytest.mark.parametrize("text", ["NULL", "true", "a.b", "a + 1", "1", ""])
def test_other_expressions_have_no_name_of_their_own(text: str) -> None:
    assert own_name(text) is None


@given(st.text(min_size=1))
def test_quoting_keeps_any_name(name: str) -> None:
    assert unquote(quote(name)) == name
    assert identifier(quote(name)) == name
    assert unquote(quote_if_needed(name)) == name


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a as b", ("a", "b")),
        (" a  AS\n`b c` ", ("a", "b c")),
        ("`x as y` as `z as w`", ("`x as y`", "z as w")),
        ("cast(a as int)", ("cast(a as int)", None)),
        ("cast(a as int) as b", ("cast(a as int)", "b")),
        ("`a as b`", ("`a as b`", None)),
        ("'a as b'", ("'a as b'", None)),
        ("a", ("a", None)),
        ("alias", ("alias", None)),
        ("has bas", ("has bas", None)),
    ],
)
def test_an_alias_is_split_off(text: str, parts: tuple[str, str | None]) -> None:
    assert split_alias(text) == parts


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("sum(a)", Call("sum", "a")),
        (" Sum ( a * (b + 1) ) ", Call("Sum", "a * (b + 1)")),
        ("count()", Call("count", "")),
        (
            "max(f(')', \")\", `)`, '\\')', 'it'')s'))",
            Call("max", "f(')', \")\", `)`, '\\')', 'it'')s')"),
        ),
        ("min(a[0])", Call("min", "a[0]")),
        ("sum(a) + 1", None),
        ("sum(a) / count(*)", None),
        ("(sum(a))", None),
        ("1 + sum(a)", None),
        ("sum(a) as b", None),
        ("sum(a) filter (where b)", None),
        ("sum(a) over (partition by b)", None),
        ("sum(a", None),
        ("sum(')", None),
        ("sum", None),
        ("a.sum(b)", None),
        ("", None),
    ],
)
def test_one_call_and_nothing_else(text: str, call: Call | None) -> None:
    assert single_call(text) == call


atoms = st.sampled_from(["a", "'('", "')'", '")("', "`)`", "1", "x[1]", "'it''s ('", "'\\'('"])
expressions = st.recursive(
    atoms,
    lambda inner: (
        inner.map(lambda e: f"({e})")
        | st.lists(inner, max_size=3).map(lambda es: f"f({', '.join(es)})")
        | st.tuples(inner, inner).map(" + ".join)
    ),
    max_leaves=8,
)


@given(expressions)
def test_brackets_and_quotes_in_the_argument_do_not_end_the_call(expression: str) -> None:
    assert single_call(f"sum({expression})") == Call("sum", expression)
    assert single_call(f"sum({expression}) / sum({expression})") is None


@given(st.lists(expressions, max_size=4))
def test_arguments_are_split_at_the_commas_between_them_only(arguments: list[str]) -> None:
    assert split_arguments(", ".join(arguments)) == arguments


@given(expressions, expressions)
def test_what_stands_after_a_call_is_told_from_it(inside: str, after: str) -> None:
    assert leading_call(f" sum({inside}) filter (where {after}) ") == (
        Call("sum", inside),
        f"filter (where {after})",
    )


@pytest.mark.parametrize("text", ["", "a", "a.sum(b)", "sum(a", "(sum(a))", "sum(a]"])
def test_a_text_that_begins_otherwise_has_no_leading_call(text: str) -> None:
    assert leading_call(text) is None
