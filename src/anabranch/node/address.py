"""Where a node is to be found: a file in the pipeline's directory that only its owner may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from anabranch.store.files import read_file, store_errors

FILE = "node.json"


class NodeAddress(msgspec.Struct, frozen=True):
    """The address of a node process, and the secret that its callers must know.

    ``options`` is the hash of what it was started with: see ``NodeCommand``.
    """

    host: str
    port: int
    pid: int
    boot: str
    secret: str
    options: str = ""


def write_node_address(directory: Path, address: NodeAddress) -> None:
    """Say where the node is: whole or not at all, readable by its owner alone."""
    path = directory / FILE
    aside = directory / f".{FILE}.{secrets.token_hex(8)}"
    with store_errors(path, "write"):
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, msgspec.json.encode(address))
        finally:
            os.close(handle)
        aside.rename(path)


def read_node_address(directory: Path) -> NodeAddress | None:
    """Where the node was when it last said so; None if it never did, or has ended in order."""
    data = read_file(directory / FILE)
    try:
        return None if data is None else msgspec.json.decode(data, type=NodeAddress)
    except msgspec.DecodeError:
        return None


def remove_node_address(directory: Path, boot: str) -> None:
    """Take back the address of a node that ends, unless another one has come since."""
    found = read_node_address(directory)
    if found is not None and found.boot == boot:
        with store_errors(directory / FILE, "remove"):
            (directory / FILE).unlink(missing_ok=True)
