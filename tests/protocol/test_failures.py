"""Errors travel as failures and come back as what they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch import errors
from anabranch.errors import AnabranchError, InvalidDataflow, Problem, StoreError
from anabranch.protocol.failures import error_of, failure_of
from anabranch.protocol.node import Failure


def kinds(base: type[AnabranchError]) -> Iterator[type[AnabranchError]]:
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from kinds(kind)


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds(AnabranchError) if kind is not InvalidDataflow]
)
@pytest.mark.parametrize(("where", "do"), [(None, None), ("a/b", "Do this.")])
def test_an_error_comes_back_as_it_was(
    kind: type[AnabranchError], where: str | None, do: str | None
) -> None:
    error = kind("It happened", where=where, do=do)
    back = error_of(failure_of(error))
    assert type(back) is kind
    assert (back.what, back.where, back.do, str(back)) == ("It happened", where, do, str(error))


def test_all_problems_of_a_dataflow_come_back() -> None:
    problems = [Problem("a", "it is wrong", "Mend it."), Problem("b", "so is this", "Mend that.")]
    error = InvalidDataflow("orders", problems)
    back = error_of(failure_of(error))
    assert isinstance(back, InvalidDataflow)
    assert str(back) == str(error)
    assert "so is this" in str(back)
    assert str(error_of(failure_of(back))) == str(error)


def test_an_unknown_code_is_kept() -> None:
    back = error_of(Failure("of.tomorrow", "Something new", "there", "Update."))
    assert type(back) is AnabranchError
    assert str(back) == "[of.tomorrow] Something new (there). Update."
    assert failure_of(back) == Failure("of.tomorrow", "Something new", "there", "Update.")
    assert AnabranchError.code == "anabranch"


def test_an_error_of_python_says_its_kind() -> None:
    assert failure_of(KeyError("x")) == Failure("anabranch", "KeyError: 'x'")


def test_a_branch_of_the_tree_can_be_caught() -> None:
    with pytest.raises(StoreError):
        raise error_of(Failure("store.disk_full", "Cannot write"))
