"""The exit codes, the same for every command. ``docs/cli.md`` lists them."""

from __future__ import annotations

from enum import IntEnum

from anabranch.errors import (
    AnabranchError,
    CoordinatorStarting,
    CoordinatorUnreachable,
    DirectoryInUse,
    Forbidden,
    InvalidRequest,
    OperationError,
    TooManyRequests,
    Unauthorized,
)


class Exit(IntEnum):
    """The exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    UNFINISHED = 5
    INTERRUPTED = 130


def exit_of(error: AnabranchError) -> Exit:
    """The exit code for an error.

    >>> from anabranch.errors import DiskFull
    >>> exit_of(Unauthorized("Wrong token")), exit_of(DiskFull("No space"))
    (<Exit.REFUSED: 3>, <Exit.FAILED: 1>)
    """
    match error:
        case OperationError() | DirectoryInUse() | Unauthorized() | Forbidden() | TooManyRequests():
            return Exit.REFUSED
        case InvalidRequest():
            return Exit.USAGE
        case CoordinatorUnreachable() | CoordinatorStarting():
            return Exit.UNREACHABLE
        case _:
            return Exit.FAILED
