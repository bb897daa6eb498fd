"""How a coordinator is found: the file ``coordinator.json`` in the pipeline's directory.

It holds the token, so only its owner may read it. It is a hint, not the truth: who leads stands
in the journal, and a file that a killed coordinator left behind leads to nobody.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

import msgspec

from anabranch.errors import CoordinatorUnreachable
from anabranch.store.files import store_errors

NAME = "coordinator.json"


class Address(msgspec.Struct, frozen=True):
    """Where a coordinator listens, which process and which leader it is."""

    url: str
    pid: int
    leader: int
    token: str | None = None


def write_address(directory: Path, address: Address) -> None:
    """Say where the coordinator is, in place of whatever was said before."""
    path = directory / NAME
    aside = directory / f".{NAME}.{uuid.uuid4().hex}.aside"
    with store_errors(path, "write"):
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(msgspec.json.encode(address))
                file.flush()
                os.fsync(file.fileno())
            aside.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise


def read_address(directory: Path) -> Address:
    """Where the coordinator of a directory is said to be; ``CoordinatorUnreachable``."""
    path = directory / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Address)
    except FileNotFoundError:
        raise CoordinatorUnreachable(
            "No pipeline runs in this directory",
            where=str(directory),
            do="Run it, or name the directory of one that runs.",
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise CoordinatorUnreachable(
            f"The coordinator's address cannot be read: {error}",
            where=str(path),
            do="Only who runs the pipeline may read it; --url and --token work for others.",
        ) from error


def remove_address(directory: Path, address: Address) -> None:
    """Take back what was said, unless another coordinator has said something since."""
    with contextlib.suppress(CoordinatorUnreachable, OSError):
        if read_address(directory) == address:
            (directory / NAME).unlink()
