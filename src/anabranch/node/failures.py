"""Errors as they travel, and back."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.errors import AnabranchError, InvalidDataflow
from anabranch.node.port import Failure


def failure_of(error: BaseException, where: str | None = None) -> Failure:
    """What an error says; of an error that is not ours, its type and text."""
    if isinstance(error, InvalidDataflow):
        lines = "; ".join(map(str, error.problems))
        return Failure(error.code, f"{error.what}: {lines}", error.where, error.do)
    if isinstance(error, AnabranchError):
        return Failure(error.code, error.what, error.where, error.do)
    return Failure(AnabranchError.code, f"{type(error).__name__}: {error}", where)


def error_of(failure: Failure) -> AnabranchError:
    """The error that a failure was, by its code; the root of the tree for a code of the future."""
    kinds = {kind.code: kind for kind in _tree(AnabranchError) if kind is not InvalidDataflow}
    kind = kinds.get(failure.code, AnabranchError)
    return kind(failure.what, where=failure.where, do=failure.do)


def _tree(kind: type[AnabranchError]) -> Iterator[type[AnabranchError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)
