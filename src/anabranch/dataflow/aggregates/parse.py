"""The parser for aggregates: one call with optional distinct, NULL option and filter."""

from __future__ import annotations

import re

from anabranch.dataflow.aggregates.refused import REFUSED
from anabranch.dataflow.aggregates.rules import CALLABLE, MANY, RULES, WITHIN_GROUP, Rule
from anabranch.dataflow.aggregates.value import AggregateCall, Parameter
from anabranch.dataflow.sql.sql_text import Call, leading_call, single_call, split_arguments
from anabranch.errors import InvalidAggregate

_QUANTIFIER = re.compile(r"(?is)(?P<word>distinct|all)\b(?P<rest>.*)")
_NULLS = re.compile(r"(?is)(?P<before>.*?)\s*\b(?P<word>ignore|respect)\s+nulls")
_WITHIN = re.compile(r"(?is)within\s+(?P<group>group\s*\(.*)")
_ORDER_BY = re.compile(r"(?is)order\s+by\s+(?P<value>.*?)(\s+asc)?")
_OTHERWISE = re.compile(r"(?is)\b(desc|nulls\s+(first|last))$")
_FILTER = re.compile(r"(?is)filter\s*\(.*\)")
_WHERE = re.compile(r"(?is)where\b\s*(?P<condition>.*\S)\s*")


def parse_aggregate(text: str) -> AggregateCall:
    """Parse an aggregate such as ``"sum(amount * 2) filter (where paid)"``.

    Raises ``InvalidAggregate`` unless the text is one call of a known function.

    >>> parse_aggregate("MEAN(amount)")
    AggregateCall(function='avg', arguments=('amount',), parameters=(), condition=None)
    """
    found = leading_call(text)
    if found is None:
        raise _not_one(text)
    call, rest = _without_group(*found, text)
    rule = _rule(call, text)
    rest, nulls = _without_nulls_option(rest)
    condition = _condition(rest, text)
    return _aggregate(call, rule, nulls, condition, text)


def _without_group(call: Call, rest: str, text: str) -> tuple[Call, str]:
    """Rewrite ``f(p) within group (order by x)`` as ``f(x, p)``."""
    name = call.name.lower()
    if name not in WITHIN_GROUP:
        return call, rest
    within = _WITHIN.fullmatch(rest)
    found = None if within is None else leading_call(within["group"])
    order = None if found is None else _ORDER_BY.fullmatch(found[0].argument)
    values = [] if order is None else split_arguments(order["value"])
    if found is None or len(values) != 1 or _OTHERWISE.search(values[0]):
        raise InvalidAggregate(
            f'"{text}" does not say what to compute {name} over',
            do=f"Write {name}(percentage) within group (order by x), ascending.",
        )
    return Call(WITHIN_GROUP[name], f"{values[0]}, {call.argument}"), found[1]


def _rule(call: Call, text: str) -> Rule:
    name = call.name.lower()
    rule = CALLABLE.get(name) or (RULES[name] if name in WITHIN_GROUP.values() else None)
    if rule is not None:
        return rule
    if name in REFUSED:
        raise InvalidAggregate(
            f'aggregate function "{call.name}" in "{text}" is not supported', do=REFUSED[name]
        )
    raise InvalidAggregate(
        f'"{call.name}" in "{text}" is not an aggregate function',
        do=f"Use one of {', '.join(sorted(CALLABLE))}, or keep the state yourself with "
        "stateful_map.",
    )


def _condition(rest: str, text: str) -> str | None:
    if not rest:
        return None
    inside = single_call(rest) if _FILTER.fullmatch(rest) else None
    where = None if inside is None else _WHERE.fullmatch(inside.argument)
    if where is None:
        if re.match(r"(?i)(within|over)\b", rest):
            raise InvalidAggregate(
                f'"{rest}" in "{text}" is not supported',
                do="Drop it: aggregates cover all rows of a key, in row order.",
            )
        raise _not_one(text)
    return where["condition"]


def _not_one(text: str) -> InvalidAggregate:
    return InvalidAggregate(
        f'"{text}" is not one aggregate function',
        do="Give each function its own column and combine them in a later select; only "
        '"filter (where …)" may follow a call, as in count(*) filter (where paid).',
    )


def _without_nulls_option(text: str) -> tuple[str, bool | None]:
    """Strip a trailing ``ignore nulls`` or ``respect nulls``; True for ``ignore``."""
    match = _NULLS.fullmatch(text)
    if match is None:
        return text, None
    return match["before"], match["word"].lower() == "ignore"


def _aggregate(
    call: Call, rule: Rule, nulls: bool | None, condition: str | None, text: str
) -> AggregateCall:
    inside, quantifier = call.argument, _QUANTIFIER.fullmatch(call.argument)
    if quantifier is not None:
        inside = quantifier["rest"].strip()
        if quantifier["word"].lower() == "distinct":
            rule = _distinct(rule, text)
    given = split_arguments(inside)
    if given and nulls is None:
        given[-1], nulls = _without_nulls_option(given[-1])
    if rule.name == "count" and given == ["*"]:
        given = []
    elif rule.name == "count" and not given:
        raise _wrong_arguments(rule, text)
    arguments, constants = _split(rule, given, text)
    return AggregateCall(
        rule.name, arguments, _with_nulls_option(rule, constants, nulls, text), condition
    )


def _distinct(rule: Rule, text: str) -> Rule:
    if rule.distinct is None:
        raise InvalidAggregate(
            f'"{text}" asks for distinct values, which {rule.name} does not support',
            do=f"Write {rule.usage}, or use collect_set(x) and a select after it.",
        )
    return RULES[rule.distinct]


def _split(
    rule: Rule, given: list[str], text: str
) -> tuple[tuple[str, ...], tuple[Parameter, ...]]:
    """Split a call's arguments into expressions and constants."""
    required = sum(constant.default is None for constant in rule.constants)
    expressions = given if rule.most == MANY else given[: rule.most]
    rest = given[len(expressions) :]
    too_few = len(expressions) < rule.least or len(rest) < required
    if too_few or len(rest) > len(rule.constants) or "*" in given or "" in given:
        raise _wrong_arguments(rule, text)
    constants: list[Parameter] = []
    for place, constant in enumerate(rule.constants):
        if place < len(rest):
            constants.append(constant.value(rest[place], text))
        else:
            assert constant.default is not None
            constants.append(constant.default)
    return tuple(expressions), tuple(constants)


def _with_nulls_option(
    rule: Rule, constants: tuple[Parameter, ...], nulls: bool | None, text: str
) -> tuple[Parameter, ...]:
    if nulls is None:
        return constants
    if rule.name not in ("first", "last", "any_value"):
        raise InvalidAggregate(
            f'"{text}" has a NULL option, which {rule.name} does not support',
            do=f"Write {rule.usage}.",
        )
    return (nulls,)


def _wrong_arguments(rule: Rule, text: str) -> InvalidAggregate:
    return InvalidAggregate(
        f'"{text}" has the wrong arguments for {rule.name}', do=f"Write {rule.usage}."
    )
