"""Numbers in a query that are written after it is planned.

They stand in a literal, whose content is written just before a step runs, like blanks: Spark reads
it when it sends out the tasks. In the text of a query, numbers that change with every step would
make Spark plan and compile each step anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pyspark.sql import SparkSession

from anabranch.spark.jvm import Java, java_class

_CATALYST = "org.apache.spark.sql.catalyst"
_COLUMNS = "org.apache.spark.sql.classic.ExpressionUtils"
_WIDTHS = {"int": np.int32, "bigint": np.int64}


class LateArray:
    """A fixed number of numbers, as a column that is the same array for every row.

    Only one job at a time may read it: a task that is sent out again takes its current content. An
    index must depend on the row: Spark computes constant expressions when it plans.
    """

    def __init__(
        self, spark: SparkSession, size: int, kind: Literal["int", "bigint"] = "int"
    ) -> None:
        """The numbers are 0 at first."""
        jvm: Java = spark._jvm
        self._kind = kind
        self._begins: int = java_class(jvm, "org.apache.spark.unsafe.Platform").BYTE_ARRAY_OFFSET
        self._data: Java = java_class(jvm, f"{_CATALYST}.expressions.UnsafeArrayData")()
        self._written: list[int] = []
        self.write([0] * size)
        array = java_class(jvm, "org.apache.spark.sql.types.DataType").fromDDL(f"array<{kind}>")
        # The literal does not copy the data, so it sees later writes.
        literal = java_class(jvm, f"{_CATALYST}.expressions.Literal")(self._data, array)
        self.column: Java = java_class(jvm, _COLUMNS).column(literal)

    def write(self, values: Sequence[int]) -> None:
        """Write all numbers with one call: in a rescale many bins change."""
        assert not self._written or len(values) == len(self._written)
        if list(values) == self._written:
            return
        data = pack_array(values, self._kind)
        self._data.pointTo(data, self._begins, len(data))
        self._written = list(values)


def pack_array(values: Sequence[int], kind: Literal["int", "bigint"] = "int") -> bytearray:
    """Numbers in the memory layout of Spark's ``UnsafeArrayData``.

    The count in 64 bits, a null bit for each number, and the numbers, padded to words of 64 bits.

    >>> list(pack_array([7, 8, 9]).hex("_", 4).split("_")[-4:])
    ['07000000', '08000000', '09000000', '00000000']
    """
    words = -(-len(values) // 64)
    count = np.array([len(values)], dtype=np.int64)
    numbers = np.array(values, dtype=_WIDTHS[kind]).tobytes()
    return bytearray(count.tobytes() + bytes(8 * words) + numbers + bytes(-len(numbers) % 8))
