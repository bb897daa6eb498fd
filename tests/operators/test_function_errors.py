"""What the user is told when their function raises or returns something else than a pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.operators.codec import SingleColumn
from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Rows
from anabranch.operators.stateful_map import Function, StatefulMap
from tests.operators.keyed_rows import DictState

STATE = pa.schema([pa.field("n", pa.int64())])


def run(function: Function, rows: int = 1) -> None:
    operator = StatefulMap("count", function, SingleColumn(STATE), STATE)
    column = np.arange(rows, dtype=np.int64)
    order = RowOrder((column, column, column))
    keys = pa.table({"k": column})
    operator.run(
        Rows(pa.table({"v": column}), column.astype(np.uint64), keys, order), DictState(STATE)
    )


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, ZeroDivisionError])
@pytest.mark.parametrize("row", [0, 2])
def test_a_raise_is_told_as_a_raise_with_its_line(kind: type[Exception], row: int) -> None:
    def function(key: Any, row_: Any, state: Any) -> Any:
        if row_.v == row:
            raise kind("no such thing")
        return None, 1

    with pytest.raises(UserFunctionFailed) as told:
        run(function, rows=3)
    text = str(told.value)
    assert f"raised {kind.__name__}" in text
    assert "no such thing" in text
    assert f"Key(k={row})" in text
    assert f"Row(v={row})" in text
    assert 'raise kind("no such thing")' in text
    assert __file__ in text


@pytest.mark.parametrize("returned", [None, 7, (1,), (1, 2, 3), "ab c"])
def test_what_is_no_pair_is_told_as_what_was_returned(returned: object) -> None:
    def function(key: Any, row: Any, state: Any) -> Any:
        return returned

    with pytest.raises(OutputMismatch) as told:
        run(function)
    assert f"returned {returned!r} instead of (output, new state)" in str(told.value)
