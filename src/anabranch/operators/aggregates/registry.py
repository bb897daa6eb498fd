"""The aggregate functions by name."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.operators.aggregates.distinct import CollectList, Distinct, ListAgg
from anabranch.operators.aggregates.estimate import DistinctEstimate
from anabranch.operators.aggregates.extremes import BestBy, BitwiseExtreme, Extreme
from anabranch.operators.aggregates.first_last import FirstOrLast
from anabranch.operators.aggregates.moments import Moments
from anabranch.operators.aggregates.pairs import Pairs
from anabranch.operators.aggregates.port import Function, FunctionSpec
from anabranch.operators.aggregates.sketch import QuantileSketch
from anabranch.operators.aggregates.sums import Count, Mean, Sum
from anabranch.operators.aggregates.value_counts import ValueCounts

_NAMES: tuple[tuple[type[Function], tuple[str, ...]], ...] = (
    (Count, ("count", "count_if", "regr_count")),
    (Sum, ("sum",)),
    (Mean, ("avg", "regr_avgx", "regr_avgy")),
    (Extreme, ("min", "max", "bool_and", "bool_or")),
    (BestBy, ("min_by", "max_by")),
    (BitwiseExtreme, ("bit_and", "bit_or", "bit_xor")),
    (Moments, ("var_samp", "var_pop", "stddev_samp", "stddev_pop", "skewness", "kurtosis")),
    (Moments, ("regr_sxx", "regr_syy")),
    (Pairs, ("covar_pop", "covar_samp", "corr", "regr_sxy")),
    (Pairs, ("regr_slope", "regr_intercept", "regr_r2")),
    (FirstOrLast, ("first", "last", "any_value")),
    (CollectList, ("collect_list",)),
    (ListAgg, ("listagg",)),
    (Distinct, ("collect_set", "count_distinct", "sum_distinct", "avg_distinct")),
    (Distinct, ("listagg_distinct",)),
    (ValueCounts, ("mode", "percentile", "percentile_disc", "median")),
    (QuantileSketch, ("approx_percentile",)),
    (DistinctEstimate, ("approx_count_distinct",)),
)
FUNCTIONS: Mapping[str, type[Function]] = {name: kind for kind, names in _NAMES for name in names}


def make(spec: FunctionSpec) -> Function:
    """Create the function of a specification."""
    return FUNCTIONS[spec.function](spec)
