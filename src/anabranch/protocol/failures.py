"""Errors across processes: converts an error to a ``Failure`` and back.

An ``AnabranchError`` comes back as the same class, so that callers in another process can catch it
by branch.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.errors import AnabranchError, InvalidDataflow
from anabranch.protocol.node import Failure


def failure_of(error: BaseException) -> Failure:
    """The error as a ``Failure``; errors that are not ours get the code of ``AnabranchError``.

    >>> from anabranch.errors import DiskFull
    >>> failure_of(DiskFull("Cannot write", where="a/b"))
    Failure(code='store.disk_full', what='Cannot write', where='a/b', do=None)
    """
    if isinstance(error, InvalidDataflow):
        return Failure(error.code, str(error).removeprefix(f"[{error.code}] "))
    if isinstance(error, AnabranchError):
        return Failure(error.code, error.what, error.where, error.do)
    return Failure(AnabranchError.code, f"{type(error).__name__}: {error}")


def error_of(failure: Failure) -> AnabranchError:
    """The failure as the error with its code; an ``AnabranchError`` if no class has that code.

    >>> type(error_of(Failure("store.disk_full", "Cannot write"))).__name__
    'DiskFull'
    >>> str(error_of(Failure("of.tomorrow", "Something new")))
    '[of.tomorrow] Something new.'
    """
    kind = _kinds().get(failure.code, AnabranchError)
    # Not its own constructor: that of InvalidDataflow has other parameters.
    error = kind.__new__(kind)
    AnabranchError.__init__(error, failure.what, where=failure.where, do=failure.do)
    if isinstance(error, InvalidDataflow):
        error.name, error.problems = "", ()
    if error.code != failure.code:
        vars(error)["code"] = failure.code
    return error


def _kinds() -> dict[str, type[AnabranchError]]:
    own = AnabranchError.__module__
    return {kind.code: kind for kind in _tree(AnabranchError) if kind.__module__ == own}


def _tree(kind: type[AnabranchError]) -> Iterator[type[AnabranchError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)
