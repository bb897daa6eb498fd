"""The bodies of journal entries."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from anabranch.records.commit import Checkpoint, Commit, Repair
from anabranch.records.leader import Branch, Identity, Leader
from anabranch.records.plan import Plan

Body: TypeAlias = Plan | Commit | Checkpoint | Repair | Leader | Branch | Identity

encode = msgspec.json.Encoder().encode
