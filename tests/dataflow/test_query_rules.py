"""What a query over state may consist of."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dataflow.sql.query_rules import (
    RANGE_ROWS,
    Leaf,
    Name,
    Parsed,
    check_leaves,
    has_several_statements,
    operators_in_query,
)
from anabranch.errors import (
    ForbiddenFunction,
    ForbiddenRelation,
    NotAQuery,
    QueryError,
    UnknownOperator,
)

GROUPS = {"sum": "agg_funcs", "upper": "string_funcs", "typeof": "misc_funcs"}
GROUPS |= {"java_method": "misc_funcs", "explode": "generator_funcs", "new": "unheard_funcs"}


def parsed(
    *,
    root: str = "Project",
    nodes: set[str] | None = None,
    relations: set[Name] | None = None,
    common_tables: set[str] | None = None,
    functions: set[Name] | None = None,
    table_functions: set[Name] | None = None,
    named_by_expression: bool = False,
) -> Parsed:
    return Parsed(
        root,
        frozenset({root, *(nodes or ())}),
        frozenset(relations or ()),
        frozenset(common_tables or ()),
        frozenset(functions or ()),
        frozenset(table_functions or ()),
        named_by_expression,
    )


def test_the_operators_that_are_named_are_found_whatever_their_case() -> None:
    said = parsed(
        relations={("Running-Total",), ("T",), ("counts",)},
        common_tables={"t"},
        functions={("sum",), ("system", "builtin", "upper"), ("typeof",), ("explode",)},
        table_functions={("RANGE",), ("builtin", "explode")},
    )
    operators = ["running-total", "counts", "other"]
    assert operators_in_query(said, operators, GROUPS.get) == {"running-total", "counts"}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (parsed(root="CreateTableAsSelect"), NotAQuery),
        (parsed(root="Project", nodes={"ScriptTransformation"}), NotAQuery),
        (parsed(root="CompoundBody"), NotAQuery),
        (parsed(root="SomethingNew"), NotAQuery),
        (parsed(nodes={"PlanWithUnresolvedIdentifier"}), ForbiddenRelation),
        (parsed(named_by_expression=True), ForbiddenRelation),
        (parsed(relations={("text", "/etc/hosts")}), ForbiddenRelation),
        (parsed(relations={("spark_catalog", "default", "counts")}), ForbiddenRelation),
        (parsed(relations={("count",)}), UnknownOperator),
        (parsed(table_functions={("python_worker_logs",)}), ForbiddenRelation),
        (parsed(table_functions={("mine", "range")}), ForbiddenRelation),
        (parsed(functions={("java_method",)}), ForbiddenFunction),
        (parsed(functions={("JAVA_METHOD",)}), ForbiddenFunction),
        (parsed(functions={("my_function",)}), ForbiddenFunction),
        (parsed(functions={("mine", "upper")}), ForbiddenFunction),
        (parsed(functions={("new",)}), ForbiddenFunction),
    ],
)
def test_everything_else_is_refused(said: Parsed, kind: type[QueryError]) -> None:
    with pytest.raises(kind) as raised:
        operators_in_query(said, ["counts"], GROUPS.get)
    assert raised.value.do


def test_the_statement_is_named_as_its_writer_knows_it() -> None:
    with pytest.raises(NotAQuery, match="it contains create table as select"):
        operators_in_query(parsed(root="CreateTableAsSelect", nodes={"Append"}), [], GROUPS.get)


@pytest.mark.parametrize(
    "leaf",
    [
        Leaf("View", "counts"),
        Leaf("View", "COUNTS"),
        Leaf("Range", rows=RANGE_ROWS),
        Leaf("OneRowRelation"),
        Leaf("LocalRelation"),
        Leaf("CTERelationRef"),
    ],
)
def test_state_and_values_may_be_read(leaf: Leaf) -> None:
    check_leaves([leaf], ["counts"])


@pytest.mark.parametrize(
    "leaf",
    [
        Leaf("View", "default.counts"),
        Leaf("View", "other"),
        Leaf("View"),
        Leaf("Range", rows=RANGE_ROWS + 1),
        Leaf("LogicalRelation"),
        Leaf("HiveTableRelation"),
    ],
)
def test_nothing_else_may_be_read(leaf: Leaf) -> None:
    with pytest.raises(ForbiddenRelation):
        check_leaves([Leaf("OneRowRelation"), leaf], ["counts"])


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("select 1", False),
        ("select 1;", False),
        ("select 1 ; ; \n", False),
        ("select 1; select 2", True),
        ("select ';'", False),
        ("select 'it''s; fine'", False),
        (r"select 'a\'; b'", False),
        ('select ";" from `a;b`', False),
        ("select 1 -- ; select 2", False),
        ("select /* ; ; */ 1", False),
        ("select 1; -- and no more", False),
        ("select 1; /* two */ ''", True),
    ],
)
def test_statements_are_counted_outside_quotes_and_comments(text: Any, several: bool) -> None:
    assert has_several_statements(text) is several
