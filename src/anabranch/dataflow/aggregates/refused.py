"""Spark's aggregate functions that are not supported, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping

_DISTINCT = "Use approx_count_distinct(x), whose state can be merged, or count(distinct x)."
_QUANTILES = "Use approx_percentile(x, percentage) or percentile(x, percentage)."
_FREQUENT = "Key by the value and use count(*), or keep the sketch yourself with stateful_map."
_GROUPING = "Grouping sets are not supported: distribute by each key separately."
_OVERFLOW = "Use {0}(x); cast x to decimal(38, 0) or double where it may leave the range."

#: By name: what to do instead.
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("hll_sketch_agg", "hll_union_agg"),
            *("theta_sketch_agg", "theta_union_agg", "theta_intersection_agg"),
            *(
                f"tuple_{what}_agg_{kind}"
                for what in ("sketch", "union", "intersection")
                for kind in ("double", "integer")
            ),
            *("bitmap_construct_agg", "bitmap_or_agg", "bitmap_and_agg"),
        ),
        _DISTINCT,
    ),
    **dict.fromkeys(
        (
            f"kll_{what}_agg_{kind}"
            for what in ("sketch", "merge")
            for kind in ("bigint", "double", "float")
        ),
        _QUANTILES,
    ),
    **dict.fromkeys(
        ("count_min_sketch", "approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine"),
        _FREQUENT,
    ),
    "histogram_numeric": _QUANTILES,
    "try_sum": _OVERFLOW.format("sum"),
    "try_avg": _OVERFLOW.format("avg"),
    "product": "Use exp(sum(ln(x))) in two steps: sum here, exp in a select after it.",
    "collect_union": "Use collect_set(x) over rows that hold one element each.",
    "grouping": _GROUPING,
    "grouping_id": _GROUPING,
    "measure": "Metric views are not supported: write the aggregate itself.",
}
