"""The syntax and types of the aggregate functions that a region maintains.

One aggregate is one function call, with an optional ``filter (where …)``. Result types match
Spark's, so a running sum and a batch ``select sum(…)`` over the same rows compare column by column.
The state per key is in ``operators/aggregates``.
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
