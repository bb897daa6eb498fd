"""The planned numbers of files, put in the place of the tags by which rows name them."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.errors import ReadFailed
from anabranch.operators.order.row_order import RowOrder
from anabranch.plan.boundary import SOURCE_SHIFT, UNNUMBERED
from anabranch.spark.step.rows import number_transformed

TAGS = {0: (70, 5, 900), 2: (5, (1 << SOURCE_SHIFT) - 1)}


def raw(source: int, tag: int) -> int:
    """How rows of a file name it behind a transform."""
    return UNNUMBERED + (source << SOURCE_SHIFT) + tag


def numbered(source: int, number: int) -> int:
    return (source << SOURCE_SHIFT) + number


def test_rows_of_several_sources_get_the_numbers_of_their_own_files() -> None:
    # Rows of tasks, and of sources that Python reads, have their numbers already.
    first = [raw(0, 900), raw(2, 5), numbered(1, 3), raw(0, 70), raw(2, TAGS[2][1]), 7]
    order = RowOrder((np.array(first), np.arange(6)))
    found = number_transformed(order, TAGS)
    assert found.columns[0].tolist() == [
        numbered(0, 2),
        numbered(2, 0),
        numbered(1, 3),
        numbered(0, 0),
        numbered(2, 1),
        7,
    ]
    assert found.columns[1].tolist() == list(range(6))
    assert order.columns[0].tolist() == first


def test_rows_that_have_numbers_are_left_alone() -> None:
    order = RowOrder((np.array([3, 4]), np.array([0, 0])))
    assert number_transformed(order, {}) is order


@pytest.mark.parametrize("source", [0, 1])
def test_a_file_that_the_plan_does_not_name_is_refused(source: int) -> None:
    with pytest.raises(ReadFailed, match="does not name"):
        number_transformed(RowOrder((np.array([raw(source, 6)]),)), TAGS)


def test_what_notifications_made_comes_from_no_file() -> None:
    """Its order is negative, which has the bit of a tag."""
    order = RowOrder((np.array([-1, raw(0, 5), -(1 << 40)]), np.arange(3)))
    assert number_transformed(order, TAGS).columns[0].tolist() == [-1, numbered(0, 1), -(1 << 40)]
