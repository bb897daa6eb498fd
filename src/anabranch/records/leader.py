"""Who leads a pipeline, its branches, and whose directory it is."""

from __future__ import annotations

import msgspec

NODE = "node"
"""The name of the member that runs steps."""


class Member(msgspec.Struct, frozen=True):
    """Somebody that takes part in running a pipeline: a name and an index that stay."""

    name: str
    index: int


MEMBERS = (Member(NODE, 0),)
"""Who takes part in a new pipeline."""


class Leader(msgspec.Struct, frozen=True):
    """Who coordinates: a number that only grows, and where to find whoever holds it.

    ``members`` are the peers that it leads.
    """

    number: int
    host: str
    pid: int
    since_ns: int
    address: str = ""
    members: tuple[Member, ...] = MEMBERS


class Branch(msgspec.Struct, frozen=True):
    """A line of steps that leaves another one after ``parent_step``."""

    number: int
    parent: int
    parent_step: int


class Identity(msgspec.Struct, frozen=True):
    """Whose directory this is: fixed when it is created."""

    pipeline: str
    dataflow: str
    bins: int


def decode_leader(body: bytes) -> Leader:
    """A leader from the journal."""
    return msgspec.json.decode(body, type=Leader)


def decode_branch(body: bytes) -> Branch:
    """A branch from the journal."""
    return msgspec.json.decode(body, type=Branch)


def decode_identity(body: bytes) -> Identity:
    """The identity from the journal."""
    return msgspec.json.decode(body, type=Identity)
