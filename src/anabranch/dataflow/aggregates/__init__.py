"""The syntax and types of the aggregate functions that a region maintains.

One aggregate is one function call, with an optional ``filter (where …)``. Result types match
Spark's, so a running sum and a batch ``select sum(…)`` over the same rows compare column by column.
The state per key is in ``operators/aggregates``.
"""
