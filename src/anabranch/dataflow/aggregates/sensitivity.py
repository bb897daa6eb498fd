"""The aggregates whose result depends on the order of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_ROUNDING = frozenset({"sum", "avg", "regr_avgx", "regr_avgy"})
"""Exact in any order, except over floating-point numbers."""

_ALWAYS = frozenset(
    {
        *("min_by", "max_by", "first", "last", "any_value", "collect_list", "listagg"),
        *("var_samp", "var_pop", "stddev_samp", "stddev_pop", "skewness", "kurtosis"),
        *("covar_pop", "covar_samp", "corr", "regr_sxx", "regr_syy", "regr_sxy"),
        *("regr_slope", "regr_intercept", "regr_r2"),
    }
)


def order_matters(function: str, carried: Sequence[pa.DataType]) -> bool:
    """Whether another row order could change the result.

    ``function`` is the name of a rule, ``carried`` the types of its carried columns.

    >>> order_matters("sum", [pa.int64()]), order_matters("sum", [pa.float64()])
    (False, True)
    """
    if function in _ROUNDING:
        return bool(pa.types.is_floating(carried[0]))
    return function in _ALWAYS
