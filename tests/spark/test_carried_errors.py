"""An error of ours that a task raises is the same error on the driver."""

from __future__ import annotations

import traceback

import pytest

from anabranch.errors import AnabranchError, OutputMismatch, StepFailed, UserFunctionFailed
from anabranch.spark.failure import TaskFailed, carrying_errors, translate_error


def as_spark_tells_it(error: AnabranchError) -> Exception:
    """What the driver gets: a text that holds the whole traceback, source lines included."""
    with pytest.raises(TaskFailed) as raised, carrying_errors():
        raise error
    return RuntimeError("Job aborted.\n" + "".join(traceback.format_exception(raised.value)))


@pytest.mark.parametrize(
    "error",
    [
        UserFunctionFailed("add() raised KeyError: 'x'", where="operator totals", do="Mend it."),
        OutputMismatch("f() emitted {'a': 1}\nand more"),
        UserFunctionFailed("it said: <<anabranch {} anabranch>>", where="{row}"),
    ],
)
def test_an_error_survives_with_all_its_parts(error: AnabranchError) -> None:
    found = translate_error(as_spark_tells_it(error))
    assert type(found) is type(error)
    assert (found.what, found.where, found.do) == (error.what, error.where, error.do)


def test_what_is_no_error_of_ours_is_a_failed_step() -> None:
    found = translate_error(
        RuntimeError("Task 0 failed\nValueError: the disk is purple\n at x.y(z)")
    )
    assert isinstance(found, StepFailed)
    assert "ValueError: the disk is purple" in str(found)


def test_a_query_that_is_too_deep_for_the_stack_says_what_to_do() -> None:
    found = translate_error(
        RuntimeError("[FAILED_TO_PARSE_TOO_COMPLEX] The statement was too complex")
    )
    assert isinstance(found, StepFailed)
    assert "-Xss16m" in str(found)
