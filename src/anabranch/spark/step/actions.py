"""Refuse Spark's actions inside user code that describes a query.

A transform is called before the rows of its step are there: an action would compute rows of nothing
or fail deep inside Spark. It is refused by its name, where it is called.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from pyspark.sql import GroupedData
from pyspark.sql.classic.dataframe import DataFrame

METHODS = (
    *("approxQuantile", "checkpoint", "collect", "corr", "count", "cov", "crosstab", "first"),
    *("foreach", "foreachPartition", "freqItems", "head", "isEmpty", "localCheckpoint"),
    *("mergeInto", "show", "tail", "take", "toArrow", "toLocalIterator", "toPandas", "writeTo"),
)
PROPERTIES = ("rdd", "write", "writeStream")

_lock = threading.Lock()
_guarded: Counter[int] = Counter()
_originals: dict[str, Any] = {}


class ActionRefused(Exception):
    """User code called an action where it may only describe a query."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} computes rows at once; a transform describes a query and returns its DataFrame"
        )


@contextmanager
def refusing_actions() -> Iterator[None]:
    """In this thread, actions of DataFrames raise ``ActionRefused`` within the block.

    pyspark has no hook for this, so its methods are replaced meanwhile; those of other threads do
    what they always do.
    """
    me = threading.get_ident()
    with _lock:
        if not _guarded:
            _replace_methods()
        _guarded[me] += 1
    try:
        yield
    finally:
        with _lock:
            _guarded[me] -= 1
            if not _guarded[me]:
                del _guarded[me]
            if not _guarded:
                _restore_methods()


def _replace_methods() -> None:
    for name in METHODS:
        _originals[name] = DataFrame.__dict__[name]
        setattr(DataFrame, name, _refusing(f"{name}()", _originals[name]))
    for name in PROPERTIES:
        _originals[name] = DataFrame.__dict__[name]
        getter = getattr(_originals[name], "fget", None) or _originals[name].func
        setattr(DataFrame, name, property(_refusing(name, getter)))
    _originals["pivot"] = GroupedData.pivot
    setattr(GroupedData, "pivot", _refusing_pivot(GroupedData.pivot))  # noqa: B010  (for mypy)


def _restore_methods() -> None:
    setattr(GroupedData, "pivot", _originals.pop("pivot"))  # noqa: B010
    for name, original in _originals.items():
        setattr(DataFrame, name, original)
    _originals.clear()


def _refusing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(*args: object, **named: object) -> object:
        if threading.get_ident() in _guarded:
            raise ActionRefused(name)
        return original(*args, **named)

    return call


def _refusing_pivot(original: Callable[..., Any]) -> Callable[..., Any]:
    """Without values, Spark computes them."""
    refused = _refusing("pivot() without values", original)

    @wraps(original)
    def pivot(self: object, pivot_col: str, values: object = None) -> object:
        return (refused if values is None else original)(self, pivot_col, values)

    return pivot
