"""The leader of a pipeline, its members, its branches, and its identity."""

from __future__ import annotations

import msgspec

NODE = "node"
"""The name of the member that runs steps."""


class Member(msgspec.Struct, frozen=True):
    """A process that helps to run a pipeline. Its name and index never change."""

    name: str
    index: int


MEMBERS = (Member(NODE, 0),)
"""The members of a new pipeline."""


class Leader(msgspec.Struct, frozen=True):
    """The coordinator's number, which only grows, its address, and the members it leads."""

    number: int
    host: str
    pid: int
    since_ns: int
    address: str = ""
    members: tuple[Member, ...] = MEMBERS


class Branch(msgspec.Struct, frozen=True):
    """A line of steps that branches off another one after ``parent_step``."""

    number: int
    parent: int
    parent_step: int


class Identity(msgspec.Struct, frozen=True):
    """The pipeline that a directory belongs to, fixed when it is created."""

    pipeline: str
    dataflow: str
    bins: int


decode_leader = msgspec.json.Decoder(Leader).decode
decode_branch = msgspec.json.Decoder(Branch).decode
decode_identity = msgspec.json.Decoder(Identity).decode
