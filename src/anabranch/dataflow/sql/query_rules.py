"""What a query over state may consist of: decided on what Spark's parser and analyzer found in it.

Everything is refused that is not known to be harmless. A query is made of relational operators
over the views of operators, inline values and small ranges, and of functions that Spark has built
in and that compute from their arguments alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.errors import (
    ForbiddenFunction,
    ForbiddenRelation,
    NotAQuery,
    UnknownOperator,
)

RANGE_ROWS = 10_000_000
"""How many rows ``range(…)`` may give."""

Name: TypeAlias = tuple[str, ...]
"""A name in SQL: its parts, from the catalog down."""

QUERY_NODES = frozenset(
    {
        *("Project", "Filter", "Aggregate", "Join", "LateralJoin", "Union", "Except", "Intersect"),
        *("Distinct", "Sort", "GlobalLimit", "LocalLimit", "LimitAll", "Offset", "Generate"),
        *("Pivot", "Unpivot", "Sample", "Window", "WithWindowDefinition", "SubqueryAlias"),
        *("UnresolvedHaving", "UnresolvedQualify", "UnresolvedHint", "UnresolvedWith"),
        *("UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases", "UnresolvedInlineTable"),
        *("UnresolvedRelation", "UnresolvedTableValuedFunction"),
        *("OneRowRelation", "LocalRelation", "RepartitionByExpression"),
    }
)
"""Catalyst's names for what a query is parsed into."""

TABLE_FUNCTIONS = frozenset(
    {
        *("range", "explode", "explode_outer", "posexplode", "posexplode_outer"),
        *("inline", "inline_outer", "stack", "json_tuple"),
        *("variant_explode", "variant_explode_outer"),
    }
)

FUNCTION_GROUPS = frozenset(
    {
        *("agg_funcs", "window_funcs", "generator_funcs", "lambda_funcs", "predicate_funcs"),
        *("array_funcs", "collection_funcs", "map_funcs", "struct_funcs", "string_funcs"),
        *("math_funcs", "bitwise_funcs", "hash_funcs", "conditional_funcs", "conversion_funcs"),
        *("datetime_funcs", "json_funcs", "csv_funcs", "url_funcs", "variant_funcs"),
    }
)
"""Spark's groups of functions that compute from their arguments alone."""

OTHER_FUNCTIONS = frozenset(
    {
        *("typeof", "uuid", "assert_true", "raise_error", "version"),
        *("bitmap_bit_position", "bitmap_bucket_number", "bitmap_count"),
        *("hll_sketch_estimate", "hll_union", "current_date", "current_timestamp"),
        *("aes_encrypt", "aes_decrypt", "try_aes_decrypt"),
    }
)
"""Of Spark's other functions, those that are harmless too."""

# What may hold a semicolon that ends nothing: quoted text, quoted names, comments.
_QUIET = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_BUILT_IN = (("builtin",), ("system", "builtin"))


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text consists of before any name in it has been looked up."""

    root: str
    nodes: frozenset[str]
    relations: frozenset[Name]
    common_tables: frozenset[str]
    functions: frozenset[Name]
    table_functions: frozenset[Name]
    named_by_expression: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a query reads, after all names have been looked up; ``rows`` for a range."""

    kind: str
    view: str | None = None
    rows: int | None = None


def mentioned(
    parsed: Parsed, operators: Collection[str], group_of: Callable[[str], str | None]
) -> frozenset[str]:
    """The operators that a query names; raises a ``QueryError`` for one that is not allowed.

    ``group_of`` is Spark's group of a function that is built in, None for others.
    """
    _check_nodes(parsed)
    for name in sorted(parsed.table_functions):
        if _plain(name) not in TABLE_FUNCTIONS:
            raise ForbiddenRelation(
                f"The table function {_text(name)} is not possible in a query over state",
                do=f"There are: {', '.join(sorted(TABLE_FUNCTIONS))}.",
            )
    for name in sorted(parsed.functions):
        _check_function(name, group_of)
    by_lower = {operator.lower(): operator for operator in operators}
    common = {name.lower() for name in parsed.common_tables}
    return frozenset(
        by_lower[name[0].lower()]
        for name in sorted(parsed.relations)
        if _names_state(name, by_lower, common)
    )


def has_several_statements(text: str) -> bool:
    """Whether more than one statement stands in a text that the parser could not read.

    >>> has_several_statements("select ';' -- ;"), has_several_statements("select 1; select 2")
    (False, True)
    """
    bare = _QUIET.sub(lambda found: "" if found[0][0] in "-/" else "x", text)
    return sum(bool(part.strip()) for part in bare.split(";")) > 1


def check_leaves(leaves: Iterable[Leaf], operators: Collection[str]) -> None:
    """Raise ``ForbiddenRelation`` unless a query reads nothing but state and values."""
    views = {operator.lower() for operator in operators}
    for leaf in leaves:
        match leaf:
            case Leaf(kind="Range", rows=int(rows)) if rows > RANGE_ROWS:
                raise ForbiddenRelation(
                    f"A range of {rows:,} rows is longer than {RANGE_ROWS:,}",
                    do="Ask for a shorter one.",
                )
            case Leaf(kind="View", view=str(view)) if view.lower() in views:
                continue
            case Leaf(kind="Range" | "OneRowRelation" | "LocalRelation"):
                continue
            case Leaf(kind="CTERelationRef" | "UnionLoopRef"):
                continue
            case _:
                raise ForbiddenRelation(
                    f"The query reads {leaf.view or leaf.kind}, which is not state",
                    do=_ONLY_STATE,
                )


_ONLY_STATE = (
    "Name operators only; to join state with other data, use pipeline.state(…), a DataFrame."
)


def _check_nodes(parsed: Parsed) -> None:
    strange = sorted(parsed.nodes - QUERY_NODES)
    if not strange and not parsed.named_by_expression:
        return
    if parsed.named_by_expression or "PlanWithUnresolvedIdentifier" in strange:
        raise ForbiddenRelation(
            "identifier(…) is not possible in a query over state", do="Write the name itself."
        )
    name = parsed.root if parsed.root in strange else strange[0]
    raise NotAQuery(
        f"The statement is not a query over state: it holds {_spoken(name)}",
        do="Write one select; nothing can be made, changed, set or called by a query.",
    )


def _spoken(node: str) -> str:
    """A node of Catalyst's as a reader may know it.

    >>> _spoken("CreateTableAsSelect")
    'create table as select'
    """
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in node)
    return words.replace("command", "").replace("statement", "").strip()


def _check_function(name: Name, group_of: Callable[[str], str | None]) -> None:
    plain = _plain(name)
    group = None if plain is None else group_of(plain)
    if group is None:
        raise ForbiddenFunction(
            f"There is no function {_text(name)} among those that Spark has built in",
            do="Functions that were registered are not possible here; see Spark's list.",
        )
    if group not in FUNCTION_GROUPS and plain not in OTHER_FUNCTIONS:
        raise ForbiddenFunction(
            f"The function {plain} is not possible in a query over state",
            do="Use functions that compute from their arguments alone.",
        )


def _names_state(name: Name, operators: Collection[str], common: Collection[str]) -> bool:
    """Whether a relation is an operator's state; else it is a common table of the query."""
    if len(name) > 1:
        raise ForbiddenRelation(
            f"{_text(name)} is a file or a table, not the state of an operator",
            do=_ONLY_STATE,
        )
    if name[0].lower() in operators:
        return True
    if name[0].lower() in common:
        return False
    known = ", ".join(sorted(operators)) or "none"
    raise UnknownOperator(f"There is no stateful operator {name[0]!r}", do=f"There are: {known}.")


def _plain(name: Name) -> str | None:
    """A function's own name, where nothing but Spark's own catalog stands before it."""
    before = tuple(part.lower() for part in name[:-1])
    return name[-1].lower() if not before or before in _BUILT_IN else None


def _text(name: Name) -> str:
    return ".".join(name)
