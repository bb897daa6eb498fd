"""The coordinator's address: the file ``coordinator.json`` in the pipeline's directory.

It holds the token, so only its owner may read it. It is a hint: the journal says who leads, and
the file of a killed coordinator is stale.
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
    """Where a coordinator listens, its process and its leader number."""

    url: str
    pid: int
    leader: int
    token: str | None = None


def write_address(directory: Path, address: Address) -> None:
    """Write the coordinator's address, replacing any earlier one."""
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
    """Read the address of a directory's coordinator; ``CoordinatorUnreachable``."""
    path = directory / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Address)
    except FileNotFoundError:
        raise CoordinatorUnreachable(
            "No pipeline runs in this directory",
            where=str(directory),
            do="Run it, or name the directory of a running pipeline.",
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise CoordinatorUnreachable(
            f"Cannot read the coordinator's address: {error}",
            where=str(path),
            do="Only the user who runs the pipeline may read it; others use --url and --token.",
        ) from error


def remove_address(directory: Path, address: Address) -> None:
    """Remove the address, unless another coordinator has replaced it."""
    with contextlib.suppress(CoordinatorUnreachable, OSError):
        if read_address(directory) == address:
            (directory / NAME).unlink()
