"""The allowlist for queries over state, applied to what Spark's parser and analyzer found.

A query may use relational operators over state views, inline values and small ranges, and Spark's
built-in functions that compute from their arguments alone. Everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

import msgspec

from anabranch.errors import ForbiddenFunction, ForbiddenRelation, NotAQuery, UnknownOperator

RANGE_ROWS = 10_000_000
"""The most rows that ``range(…)`` may produce."""

Name: TypeAlias = tuple[str, ...]
"""The parts of a SQL name, from the catalog down."""

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
"""The Catalyst nodes that a query may be parsed into."""

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
"""Spark's function groups whose functions compute from their arguments alone."""

OTHER_FUNCTIONS = frozenset(
    {
        *("typeof", "uuid", "assert_true", "raise_error", "version"),
        *("bitmap_bit_position", "bitmap_bucket_number", "bitmap_count"),
        *("hll_sketch_estimate", "hll_union", "current_date", "current_timestamp"),
        *("aes_encrypt", "aes_decrypt", "try_aes_decrypt"),
    }
)
"""Harmless functions outside those groups."""

# A semicolon in a string, a quoted name or a comment does not end a statement.
_QUOTED_OR_COMMENT = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_IDENTIFIER = re.compile(r"\bidentifier\s*\(", re.IGNORECASE)
_BUILT_IN = (("builtin",), ("system", "builtin"))


class Parsed(msgspec.Struct, frozen=True):
    """What the parser found in a query, before any name is resolved."""

    root: str
    nodes: frozenset[str]
    relations: frozenset[Name]
    common_tables: frozenset[str]
    functions: frozenset[Name]
    table_functions: frozenset[Name]
    named_by_expression: bool


class Leaf(msgspec.Struct, frozen=True):
    """A leaf of the analyzed query: what it reads; ``rows`` is set for a range."""

    kind: str
    view: str | None = None
    rows: int | None = None


def operators_in_query(
    parsed: Parsed, operators: Collection[str], group_of: Callable[[str], str | None]
) -> frozenset[str]:
    """The operators whose state a query names; a ``QueryError`` if the query is not allowed.

    ``group_of`` gives Spark's group of a built-in function, None for any other.
    """
    _check_nodes(parsed)
    for name in sorted(parsed.table_functions):
        if _builtin_name(name) not in TABLE_FUNCTIONS:
            raise ForbiddenRelation(
                f"The table function {_dotted(name)} is not allowed in a query over state",
                do=f"Use one of: {', '.join(sorted(TABLE_FUNCTIONS))}.",
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
    """Whether a text that the parser rejected holds more than one statement.

    >>> has_several_statements("select ';' -- ;"), has_several_statements("select 1; select 2")
    (False, True)
    """
    return sum(bool(part.strip()) for part in _bare(text).split(";")) > 1


def _bare(text: str) -> str:
    """A text without comments, and without what is quoted in it."""
    return _QUOTED_OR_COMMENT.sub(lambda found: " " if found[0][0] in "-/" else "x", text)


def names_by_expression(text: str) -> bool:
    """Whether a name in the text is written as ``identifier(…)``.

    Spark's parser puts a constant one in its place at once: the plan does not show it.

    >>> names_by_expression("select 1 from Identifier /* of */ ('t')")
    True
    >>> names_by_expression("select identifier, 'identifier(x)' from t")
    False
    """
    return _IDENTIFIER.search(_bare(text)) is not None


def check_resolved(names: Iterable[str], group_of: Callable[[str], str | None]) -> None:
    """Raise ``ForbiddenFunction`` unless functions that names resolved to are allowed.

    ``current_user`` is a name to the parser, and a function once it is resolved.
    """
    for name in names:
        _check_function((name,), group_of)


def check_leaves(leaves: Iterable[Leaf], operators: Collection[str]) -> None:
    """Raise ``ForbiddenRelation`` unless a query reads only state and values."""
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
                    f"The query reads {leaf.view or leaf.kind}, which is not state", do=_ONLY_STATE
                )


_ONLY_STATE = (
    "Name only operators; to join state with other data, use pipeline.state(…), a DataFrame."
)


def _check_nodes(parsed: Parsed) -> None:
    strange = sorted(parsed.nodes - QUERY_NODES)
    if not strange and not parsed.named_by_expression:
        return
    if parsed.named_by_expression or "PlanWithUnresolvedIdentifier" in strange:
        raise ForbiddenRelation(
            "identifier(…) is not allowed in a query over state", do="Write the name itself."
        )
    name = parsed.root if parsed.root in strange else strange[0]
    raise NotAQuery(
        f"The statement is not a query over state: it contains {_node_words(name)}",
        do="Write one select; a query cannot create, change, set or call anything.",
    )


def _node_words(node: str) -> str:
    """The name of a Catalyst node in plain words.

    >>> _node_words("CreateTableAsSelect")
    'create table as select'
    """
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in node)
    return words.replace("command", "").replace("statement", "").strip()


def _check_function(name: Name, group_of: Callable[[str], str | None]) -> None:
    builtin = _builtin_name(name)
    group = None if builtin is None else group_of(builtin)
    if group is None:
        raise ForbiddenFunction(
            f"{_dotted(name)} is not a built-in function of Spark",
            do="Use built-in functions only; registered functions are not allowed here.",
        )
    if group not in FUNCTION_GROUPS and builtin not in OTHER_FUNCTIONS:
        raise ForbiddenFunction(
            f"The function {builtin} is not allowed in a query over state",
            do="Use functions that compute from their arguments alone.",
        )


def _names_state(name: Name, operators: Collection[str], common: Collection[str]) -> bool:
    """Whether a relation is an operator's state, as opposed to a common table of the query."""
    if len(name) > 1:
        raise ForbiddenRelation(
            f"{_dotted(name)} is a file or a table, not the state of an operator", do=_ONLY_STATE
        )
    if name[0].lower() in operators:
        return True
    if name[0].lower() in common:
        return False
    known = ", ".join(sorted(operators)) or "none"
    raise UnknownOperator(f"There is no stateful operator {name[0]!r}", do=f"There are: {known}.")


def _builtin_name(name: Name) -> str | None:
    """A function's last name part, or None if a catalog other than Spark's own precedes it."""
    before = tuple(part.lower() for part in name[:-1])
    return name[-1].lower() if not before or before in _BUILT_IN else None


def _dotted(name: Name) -> str:
    return ".".join(name)
