"""The aggregate functions that a region keeps up to date: how they are written and typed.

One aggregate is one call of one function, perhaps with ``filter (where …)``. The types are Spark's
own, so that a running sum and a batch ``select sum(…)`` over the same rows can be compared column
by column. What is kept of each per key, and how, is in ``operators/aggregates``.
"""

from anabranch.dataflow.aggregates.parse import parse_aggregate
from anabranch.dataflow.aggregates.rules import (
    carried_columns,
    is_nullable,
    refuse_collated,
    result_type,
)
from anabranch.dataflow.aggregates.sensitivity import order_matters
from anabranch.dataflow.aggregates.value import AggregateCall, Carried, Parameter

__all__ = [
    "AggregateCall",
    "Carried",
    "Parameter",
    "carried_columns",
    "is_nullable",
    "order_matters",
    "parse_aggregate",
    "refuse_collated",
    "result_type",
]
