"""What an expression builds, read off its constants."""

from __future__ import annotations

import pytest

from anabranch.dataflow.sql.built_size import BUILT_BYTES, Constant, Expression, check_built
from anabranch.errors import ExpressionTooLarge

HUGE = 1 << 40


def call(function: str, *values: Constant | Expression) -> Expression:
    given = [v if isinstance(v, Expression) else Expression("literal", value=v) for v in values]
    return Expression(function, tuple(given))


SIZES = [
    (call("repeat", "abc", 4), 12),
    (call("repeat", "", 4), 4),
    (call("repeat", "abc", None), 0),
    (call("repeat", None, 5), 40),
    (call("repeat", call("repeat", "ab", 10), 10), 200),
    (call("space", 7), 7),
    (call("lpad", "a", 9, "b"), 9),
    (call("rpad", None, 9, "b"), 9),
    (call("sequence", 1, 10), 80),
    (call("sequence", 10, 1, -3), 32),
    (call("sequence", 1, None), 0),
    (call("sequence", 1, 10, 0), 0),
    (call("array_repeat", 1, 10), 80),
    (call("array_repeat", "a long element", 10), 140),
    (call("format_string", "%5d|%-3.2f", 1, 2), 36),
    (call("replace", call("repeat", "x", 100), "xx", "yyy"), 150),
    (call("concat", "ab", call("space", 3)), 5),
    (call("length", call("space", 300)), 300),
    (call("count_min_sketch", None, 0.5, 0.5, 1), 32),
    (call("no_builder"), 8),
]


@pytest.mark.parametrize(("expression", "size"), SIZES)
def test_the_size_of_what_is_built(expression: Expression, size: int) -> None:
    assert check_built(expression) == size


TOO_LARGE = [
    call("repeat", "x", HUGE),
    call("repeat", "x", BUILT_BYTES + 1),
    call("repeat", "x", float("inf")),
    call("repeat", None, HUGE),
    call("repeat", call("repeat", "x", 10_000), 10_000),
    call("length", call("upper", call("space", HUGE))),
    call("sequence", -HUGE, HUGE),
    call("sequence", HUGE, 1, -2),
    call("sequence", 1.0, 2.0, 1e-12),
    call("format_string", f"%{HUGE}d", 1),
    call("format_string", f"%1$.{HUGE}f", 1),
    call("count_min_sketch", None, 1e-12, 0.99, 1),
    call("concat", *[call("space", BUILT_BYTES // 2)] * 3),
]


@pytest.mark.parametrize("expression", TOO_LARGE)
def test_what_is_too_large_is_refused(expression: Expression) -> None:
    with pytest.raises(ExpressionTooLarge, match=r"would build [\d,]+ bytes, more than the 67,108"):
        check_built(expression)


def test_the_most_that_may_be_built_may_be_built() -> None:
    assert check_built(call("repeat", "x", BUILT_BYTES)) == BUILT_BYTES
