"""The interface of aggregate functions and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.dataflow.aggregates import Parameter
from anabranch.records.layout import nullable

Int64s: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
State: TypeAlias = Sequence[pa.Array]


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A function's name, the types of its arguments and its result, and its constants."""

    function: str
    kinds: tuple[pa.DataType, ...]
    result: pa.DataType
    parameters: tuple[Parameter, ...] = ()

    @property
    def kind(self) -> pa.DataType:
        """The type of the first argument in the state."""
        return nullable(self.kinds[0])


class Shape:
    """The segments of a step's rows: each is the rows of one key, and none is empty."""

    def __init__(self, starts: Int64s, rows: int) -> None:
        """``starts`` is where each segment begins."""
        self.starts = starts
        self.rows = rows

    def __len__(self) -> int:
        """The number of segments, that is of keys."""
        return len(self.starts)

    @cached_property
    def lengths(self) -> Int64s:
        """The rows of each segment."""
        return np.diff(np.append(self.starts, self.rows)).astype(np.int64)

    @cached_property
    def segment(self) -> Int64s:
        """The segment of each row."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)


@dataclass(frozen=True, slots=True)
class Segments:
    """The arguments of one aggregate in a step, in the order of the segments.

    ``where`` names the aggregate, for errors.
    """

    shape: Shape
    columns: tuple[pa.Array, ...]
    where: str

    def __len__(self) -> int:
        """The number of keys."""
        return len(self.shape)

    @property
    def values(self) -> pa.Array:
        """The first column."""
        return self.columns[0]

    def present(self) -> tuple[pa.Array, Int64s]:
        """The values that are not NULL, in order, each with its segment."""
        column, segment = self.values, self.shape.segment
        if not column.null_count:
            return column, segment
        return column.drop_null(), segment[valid(column)]


class Function(Protocol):
    """One aggregate function over one column."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The name and type of each state column; one name may be empty."""
        ...

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """The state of every key after the step; before it, a new key has NULL in all columns."""
        ...

    def result(self, state: State, where: str) -> pa.Array:
        """The result for a state."""
        ...


@dataclass(frozen=True, slots=True)
class PlainFunction:
    """The base of functions whose first state column is their result."""

    spec: FunctionSpec

    def result(self, state: State, where: str) -> pa.Array:
        """The first state column."""
        return state[0]


Make: TypeAlias = Callable[[FunctionSpec], Function]


def valid(column: pa.Array) -> Mask:
    """Which values are not NULL."""
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def numbers(column: pa.Array, kind: npt.DTypeLike = np.float64) -> npt.NDArray[np.float64]:
    """A column of numbers with 0 for NULL."""
    filled = column.fill_null(0) if column.null_count else column
    array: npt.NDArray[np.float64] = filled.to_numpy(zero_copy_only=False).astype(kind, copy=False)
    return array


def mask_nulls(values: npt.NDArray[np.float64], nothing: Mask) -> pa.Array:
    """The values, NULL where ``nothing`` is true."""
    return pa.array(values, mask=nothing)
