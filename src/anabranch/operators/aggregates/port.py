"""The interface of aggregate functions and its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.dataflow.aggregates.value import Parameter
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.order.sortable_ints import dense
from anabranch.records.bins import Mask
from anabranch.records.layout import nullable

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
    """The segments of a step's rows, and where each begins; each is one key's, none is empty."""

    def __init__(self, starts: Int64s, rows: int) -> None:
        self.starts = starts
        self.rows = rows

    def __len__(self) -> int:
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


@dataclass(frozen=True, slots=True)
class Function:
    """One aggregate function over one column, for all keys of a step at once.

    By default its state is one column of the argument's type, and that is its result.
    """

    spec: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The name and type of each state column; one name may be empty."""
        return [("", self.spec.kind)]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The state of the step's rows alone."""
        raise NotImplementedError

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """The state of the rows of ``before`` followed by those of ``after``, key by key.

        A key without rows has NULL in all columns.
        """
        raise NotImplementedError

    def result(self, state: State, where: str) -> pa.Array:
        """The result for a state."""
        return state[0]


def valid(column: pa.Array) -> Mask:
    """Which values are not NULL."""
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def numbers(column: pa.Array, kind: npt.DTypeLike = np.float64) -> npt.NDArray[np.float64]:
    """A column of numbers with 0 for NULL."""
    return dense(column).astype(kind, copy=False)
