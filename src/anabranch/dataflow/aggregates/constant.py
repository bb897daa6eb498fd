"""The constants after an aggregate's arguments: allowed values and defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.dataflow.aggregates.value import Parameter
from anabranch.dataflow.sql import constants
from anabranch.errors import InvalidAggregate


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant: what it is, how to read its text, and its default.

    A constant whose ``default`` is None is required.
    """

    what: str
    read: Callable[[str], Parameter | None]
    default: Parameter | None

    def value(self, text: str, call: str) -> Parameter:
        """The value that a text spells; ``InvalidAggregate`` if it spells none."""
        value = self.read(text)
        if value is None:
            raise InvalidAggregate(
                f'"{text}" in "{call}" is not {self.what}',
                do="Write a literal: expressions are not evaluated here.",
            )
        return value


def _percentage(text: str) -> Parameter | None:
    one = constants.number(text)
    many = constants.number_array(text) if one is None else (one,)
    if not many or not all(0 <= share <= 1 for share in many):
        return None
    return many if one is None else one


def _accuracy(text: str) -> Parameter | None:
    found = constants.number(text)
    whole = found is not None and found == int(found) and 0 < found < 1 << 31
    return found if whole else None


def _how_many(text: str) -> Parameter | None:
    found = _accuracy(text)
    return found if isinstance(found, float) and found <= 100_000 else None


def _relative_error(text: str) -> Parameter | None:
    found = constants.number(text)
    return found if found is not None and precision_of(found) is not None else None


def precision_of(relative_error: float) -> int | None:
    """The number of index bits for a HyperLogLog with this standard error, as in Spark.

    0.05 needs 9 bits. None if the error is out of range.
    """
    if not 0 < relative_error <= 1:
        return None
    bits = math.ceil(2 * math.log2(1.106 / relative_error))
    return bits if 4 <= bits <= 18 else None


PERCENTAGE = Constant("a percentage from 0 to 1, or an array of them", _percentage, None)
ACCURACY = Constant("an accuracy, a whole number above 0", _accuracy, 10000.0)
HOW_MANY = Constant("a whole number from 1 to 100000", _how_many, False)
RELATIVE_ERROR = Constant("a relative error from 0.0022 to 0.27", _relative_error, 0.05)
DELIMITER = Constant("a delimiter in quotes", constants.string, "")
FLAG = Constant("true or false", constants.truth_value, False)
