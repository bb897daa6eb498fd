"""Every aggregate function with an oracle in plain Python over all rows of a key so far.

A case says how rows are drawn, what travels to the operator (as Catalyst would compute it) and what
SQL defines the result to be. Nothing here uses the operator's code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from hashlib import blake2b
from operator import and_, or_, xor
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.operators.columns import EXACT, FLOATS, STRUCT, decimals, integers, structs

Row = tuple[Any, ...]
Kinds = tuple[pa.DataType, ...]
Oracle = Callable[[list[Row], pa.DataType], Any]

EIGHTHS = st.integers(-4000, 4000).map(lambda number: number / 8)
"""Sums of eighths are exact, so a model may add them in any order."""
NUMBERS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): st.integers(-(2**58), 2**58),
    **dict.fromkeys(FLOATS, EIGHTHS),
    pa.decimal128(10, 2): decimals(10, 2),
    pa.decimal128(32, 3): decimals(24, 3),
}
VALUES = {**EXACT, **FLOATS}
LIST = pa.list_(pa.int16())
NESTED = {LIST: st.lists(st.none() | st.integers(0, 2), max_size=3), STRUCT: structs}
FEW = {
    pa.int64(): st.integers(0, 4),
    pa.string(): st.sampled_from(["", "a", "b", "é"]),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.inf]),
    pa.bool_(): st.booleans(),
    pa.decimal128(10, 2): st.sampled_from([Decimal("0.00"), Decimal("1.10"), Decimal("-2.25")]),
    LIST: st.sampled_from([[], [1], [1, None], [None], [0, 5]]),
    STRUCT: st.sampled_from([{"a": 1, "b": "x"}, {"a": None, "b": "x"}, {"a": 1, "b": None}]),
}
DOUBLES = {pa.float64(): st.integers(-40, 40).map(float) | EIGHTHS.map(lambda x: x + 1e6)}
PERCENTS = [0.0, 0.25, 0.5, 0.9, 1.0]


def as_given(row: Row) -> Row:
    return row


def as_truth(row: Row) -> Row:
    """What travels for a count of several arguments."""
    return (None if None in row else True,)


def only_true(row: Row) -> Row:
    return (True if row[0] else None,)


def as_struct(row: Row) -> Row:
    return (None if None in row else {f"c{i}": value for i, value in enumerate(row)},)


def second(row: Row) -> Row:
    return (None if None in row else row[1],)


def first(row: Row) -> Row:
    return (None if None in row else row[0],)


def hashed(row: Row) -> Row:
    if row[0] is None:
        return (None,)
    digest = blake2b(repr(normal(row[0])).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little", signed=True),)


@dataclass(frozen=True)
class Case:
    """One function: its text, its argument types with values, what travels, and the oracle.

    ``carried`` are the types that travel; None stands for those of the arguments.
    """

    text: str
    kinds: tuple[dict[pa.DataType, st.SearchStrategy[Any]], ...]
    oracle: Oracle
    travel: Callable[[Row], Row] = as_given
    carried: Callable[[Kinds], Kinds] = field(default=lambda kinds: kinds)
    close: bool = False
    ordered: bool = False
    with_flag: bool = False
    """Whether a filter travels as a column of its own."""

    @property
    def name(self) -> str:
        return self.text


def values_of(rows: Sequence[Row]) -> list[Any]:
    return [row[0] for row in rows if row[0] is not None]


def normal(value: Any) -> Any:
    """A value that equals those which SQL takes for the same, and compares as in SQL."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) or value == 0 else value)
    if isinstance(value, dict):
        # A dictionary keeps the order in which it was made; a struct has that of its fields.
        return (1, *(normal(part) for _, part in sorted(value.items())))
    if isinstance(value, list):
        return (1, *(normal(part) for part in value))
    return (1, value)


def greatness(value: Any) -> Any:
    """As ``normal``, but -0.0 is less than 0.0."""
    sign = math.copysign(1, value) if isinstance(value, float) and value == 0 else 0
    return (normal(value), sign)


def some(oracle: Callable[[list[Any], pa.DataType], Any]) -> Oracle:
    """Of the values that are not NULL, NULL where there are none."""

    def over(rows: list[Row], kind: pa.DataType) -> Any:
        values = values_of(rows)
        return oracle(values, kind) if values else None

    return over


def total(values: list[Any], kind: pa.DataType) -> Any:
    return sum(values, start=type(values[0])(0))


def mean(values: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        with localcontext(prec=100, rounding=ROUND_HALF_UP):
            exact = sum(map(Fraction, values), start=Fraction(0)) / len(values)
            quotient = Decimal(exact.numerator) / Decimal(exact.denominator)
            return quotient.quantize(Decimal(1).scaleb(-kind.scale))
    return float(sum(values)) / len(values)


def unique(values: Sequence[Any]) -> list[Any]:
    """Each value once, sorted as SQL sorts, 0.0 for -0.0."""
    found = {normal(value): value for value in values}
    plain = [found[key] for key in sorted(found)]
    return [0.0 if isinstance(v, float) and v == 0 else v for v in plain]


def moment(rows: Sequence[Any], order: int) -> tuple[int, Fraction]:
    exact = [Fraction(value) for value in rows]
    middle = sum(exact, start=Fraction(0)) / max(len(exact), 1)
    return len(exact), sum(((v - middle) ** order for v in exact), start=Fraction(0))


def variance(less: int, root: bool) -> Oracle:
    def over(values: list[Any], kind: pa.DataType) -> Any:
        n, m2 = moment(values, 2)
        if n <= less:
            return None
        found = float(m2 / (n - less))
        return math.sqrt(found) if root else found

    return some(over)


def standardised(order: int, less: float) -> Oracle:
    def over(values: list[Any], kind: pa.DataType) -> Any:
        n, m2 = moment(values, 2)
        if m2 == 0:
            return None
        _, m = moment(values, order)
        return float(m / n) / float(m2 / n) ** (order / 2) - less

    return some(over)


def whole_pairs(rows: list[Row]) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(y), Fraction(x)) for y, x in rows if y is not None and x is not None]


def crossed(pairs: list[tuple[Fraction, Fraction]], one: int, two: int) -> Fraction:
    """The sum of the products of the deviations of two columns."""
    n = Fraction(max(len(pairs), 1))
    a, b = (sum((p[i] for p in pairs), start=Fraction(0)) / n for i in (one, two))
    return sum(((p[one] - a) * (p[two] - b) for p in pairs), start=Fraction(0))


def paired(oracle: Callable[[list[tuple[Fraction, Fraction]]], Any], least: int = 1) -> Oracle:
    def over(rows: list[Row], kind: pa.DataType) -> Any:
        pairs = whole_pairs(rows)
        if len(pairs) < least:
            return None
        found = oracle(pairs)
        return None if found is None else float(found)

    return over


def corr(pairs: list[tuple[Fraction, Fraction]]) -> Any:
    squares = crossed(pairs, 0, 0) * crossed(pairs, 1, 1)
    return None if squares == 0 else float(crossed(pairs, 0, 1)) / math.sqrt(squares)


def slope(pairs: list[tuple[Fraction, Fraction]]) -> Any:
    squares = crossed(pairs, 1, 1)
    return None if squares == 0 else crossed(pairs, 0, 1) / squares


def intercept(pairs: list[tuple[Fraction, Fraction]]) -> Any:
    steep = slope(pairs)
    y, x = (sum(p[i] for p in pairs) / len(pairs) for i in (0, 1))
    return None if steep is None else y - steep * x


def r2(pairs: list[tuple[Fraction, Fraction]]) -> Any:
    if crossed(pairs, 1, 1) == 0:
        return None
    if crossed(pairs, 0, 0) == 0:
        return 1
    return crossed(pairs, 0, 1) ** 2 / (crossed(pairs, 0, 0) * crossed(pairs, 1, 1))


def best(choose: Callable[..., Any]) -> Oracle:
    def over(rows: list[Row], kind: pa.DataType) -> Any:
        there = [row for row in rows if row[1] is not None]
        return choose(there, key=lambda row: greatness(row[1]))[0] if there else None

    return over


def best_few(number: int, *, greatest: bool) -> Oracle:
    def over(rows: list[Row], kind: pa.DataType) -> Any:
        there = [row for row in rows if row[1] is not None]
        # Stable also when turned around, so that of equals the first comes first.
        there.sort(key=lambda row: greatness(row[1]), reverse=greatest)
        return [row[0] for row in there[:number]] or None

    return over


def mode(values: list[Any], kind: pa.DataType) -> Any:
    counts = Counter(normal(value) for value in values)
    most = max(counts.values())
    least = min(key for key, count in counts.items() if count == most)
    return next(value for value in unique(values) if normal(value) == least)


def percentile(share: float) -> Callable[[list[Any], pa.DataType], Any]:
    def over(values: list[Any], kind: pa.DataType) -> float:
        ordered = sorted(values)
        place = share * (len(ordered) - 1)
        low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
        return float(low + (high - low) * (place - math.floor(place)))

    return over


def at_rank(share: float) -> Callable[[list[Any], pa.DataType], Any]:
    def over(values: list[Any], kind: pa.DataType) -> Any:
        ordered = sorted(values, key=greatness)
        return ordered[max(math.ceil(share * len(ordered)), 1) - 1]

    return over


def several(
    make: Callable[[float], Callable[[list[Any], pa.DataType], Any]],
) -> Callable[[list[Any], pa.DataType], Any]:
    return lambda values, kind: [make(share)(values, kind) for share in PERCENTS]


def text_of(values: Sequence[str]) -> str:
    return ", ".join(values)


def picked(place: int, *, ignores: bool) -> Oracle:
    def over(rows: list[Row], kind: pa.DataType) -> Any:
        values = values_of(rows) if ignores else [row[0] for row in rows]
        return values[place] if values else None

    return over


def to(*kinds: pa.DataType) -> Callable[[Kinds], Kinds]:
    return lambda _: kinds


TRUTH = ({pa.bool_(): st.booleans()},)
WHOLE = ({kind: integers(kind.bit_width) for kind in (pa.int8(), pa.int32(), pa.int64())},)
PAIR = (DOUBLES, DOUBLES)
ANY = ({**VALUES, **NESTED},)
TEXT = ({pa.string(): st.text(max_size=4)},)
DOUBLE, BOOL = pa.float64(), pa.bool_()
_EACH = f"array({', '.join(map(str, PERCENTS))})"
ORDERABLE = ({k: v for k, v in VALUES.items() if k not in (pa.bool_(), pa.string(), pa.binary())},)

CASES = [
    Case("count(*)", (), lambda rows, _: len(rows), carried=to()),
    Case("count(x)", ANY, lambda rows, _: len(values_of(rows))),
    Case(
        "count(x, y)",
        (VALUES, VALUES),
        lambda rows, _: sum(None not in row for row in rows),
        as_truth,
        to(BOOL),
    ),
    Case("count(distinct x)", (FEW,), lambda rows, _: len(unique(values_of(rows)))),
    Case(
        "count(distinct x, y)",
        (FEW, FEW),
        lambda rows, _: len({tuple(map(normal, row)) for row in rows if None not in row}),
        as_struct,
        lambda kinds: (pa.struct([(f"c{i}", kind) for i, kind in enumerate(kinds)]),),
    ),
    Case("count_if(x)", TRUTH, lambda rows, _: values_of(rows).count(True), only_true),
    Case("sum(x)", (NUMBERS,), some(total)),
    Case("avg(x)", (NUMBERS,), some(mean)),
    Case("sum(distinct x)", (NUMBERS,), some(lambda v, kind: total(unique(v), kind))),
    Case("avg(distinct x)", (NUMBERS,), some(lambda v, kind: mean(unique(v), kind))),
    Case("min(x)", (VALUES,), some(lambda v, _: min(v, key=greatness))),
    Case("max(x)", (VALUES,), some(lambda v, _: max(v, key=greatness))),
    Case("min_by(x, y)", (*ANY, {**VALUES, **NESTED}), best(min), ordered=True),
    Case("max_by(x, y)", (*ANY, {**VALUES, **NESTED}), best(max), ordered=True),
    Case("min_by(x, y, 2)", (*ANY, FEW), best_few(2, greatest=False), ordered=True),
    Case("max_by(x, y, 3)", (*ANY, FEW), best_few(3, greatest=True), ordered=True),
    Case("bool_and(x)", TRUTH, some(lambda v, _: all(v))),
    Case("bool_or(x)", TRUTH, some(lambda v, _: any(v))),
    Case("bit_and(x)", WHOLE, some(lambda v, _: reduce(and_, v))),
    Case("bit_or(x)", WHOLE, some(lambda v, _: reduce(or_, v))),
    Case("bit_xor(x)", WHOLE, some(lambda v, _: reduce(xor, v))),
    *(
        Case(f"{name}(x)", (DOUBLES,), oracle, close=True, ordered=True)
        for name, oracle in (
            ("var_samp", variance(1, False)),
            ("var_pop", variance(0, False)),
            ("stddev_samp", variance(1, True)),
            ("stddev_pop", variance(0, True)),
            ("skewness", standardised(3, 0)),
            ("kurtosis", standardised(4, 3)),
        )
    ),
    *(
        Case(f"{name}(y, x)", PAIR, oracle, close=True, ordered=True)
        for name, oracle in (
            ("covar_pop", paired(lambda p: crossed(p, 0, 1) / len(p))),
            ("covar_samp", paired(lambda p: crossed(p, 0, 1) / (len(p) - 1), 2)),
            ("corr", paired(corr, 2)),
            ("regr_sxy", paired(lambda p: crossed(p, 0, 1))),
            ("regr_slope", paired(slope, 2)),
            ("regr_intercept", paired(intercept, 2)),
            ("regr_r2", paired(r2, 2)),
        )
    ),
    Case("regr_count(y, x)", PAIR, lambda rows, _: len(whole_pairs(rows)), as_truth, to(BOOL)),
    *(
        Case(f"{name}(y, x)", PAIR, paired(oracle), travel, to(DOUBLE), close=True, ordered=True)
        for name, oracle, travel in (
            ("regr_avgx", lambda p: sum(x for _, x in p) / len(p), second),
            ("regr_avgy", lambda p: sum(y for y, _ in p) / len(p), first),
            ("regr_sxx", lambda p: crossed(p, 1, 1), second),
            ("regr_syy", lambda p: crossed(p, 0, 0), first),
        )
    ),
    Case("first(x)", ANY, picked(0, ignores=False), ordered=True, with_flag=True),
    Case("last(x)", ANY, picked(-1, ignores=False), ordered=True, with_flag=True),
    Case("any_value(x)", ANY, picked(0, ignores=False), ordered=True, with_flag=True),
    Case("first(x, true)", ANY, picked(0, ignores=True), ordered=True),
    Case("last(x) ignore nulls", ANY, picked(-1, ignores=True), ordered=True),
    Case("collect_list(x)", ANY, lambda rows, _: values_of(rows), ordered=True),
    Case("collect_set(x)", (FEW,), lambda rows, _: unique(values_of(rows))),
    Case("listagg(x, ', ')", TEXT, some(lambda v, _: text_of(v)), ordered=True),
    Case("listagg(distinct x, ', ')", TEXT, some(lambda v, _: text_of(unique(v)))),
    Case("mode(x)", (FEW,), some(mode)),
    Case("median(x)", (DOUBLES,), some(percentile(0.5)), close=True),
    Case("percentile(x, 0.9)", (DOUBLES,), some(percentile(0.9)), close=True),
    Case(f"percentile(x, {_EACH})", (DOUBLES,), some(several(percentile)), close=True),
    Case(
        "percentile_cont(0.1) within group (order by x)",
        (DOUBLES,),
        some(percentile(0.1)),
        close=True,
    ),
    Case(f"percentile_disc({_EACH}) within group (order by x)", (DOUBLES,), some(several(at_rank))),
    Case("approx_percentile(x, 0.25)", ORDERABLE, some(at_rank(0.25))),
    Case(f"approx_percentile(x, {_EACH}, 100)", ORDERABLE, some(several(at_rank))),
    # So few values fall into registers of their own with this many bits.
    Case(
        "approx_count_distinct(x, 0.003)",
        (FEW,),
        lambda rows, _: len(unique(values_of(rows))),
        hashed,
        to(pa.int64()),
    ),
]
