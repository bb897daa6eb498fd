"""The coordinator's view of the journal."""

from __future__ import annotations

import msgspec

from anabranch.protocol.node import Output
from anabranch.records.commit import Checkpoint, Commit
from anabranch.records.leader import Identity
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan


class JournalView(msgspec.Struct, frozen=True):
    """What the journal says about the pipeline.

    ``commit`` is the newest of the branch (made up from a checkpoint if only that was copied),
    ``plan`` the newest revision of the plan after it, if any. ``states`` is the state at the
    commit, from its newest repair if it has one; ``repairs`` is the number of that repair.
    ``outputs`` are the committed steps that some sink may lack, and ``checkpoints`` the kept ones,
    both oldest first. From step ``replayable`` on, all plans and commits exist. ``damaged`` holds
    the errors of unreadable checkpoints, which are not in ``checkpoints``. ``rewound``: the branch
    has no commit of its own, so sinks may still have output of later steps to take back.
    """

    identity: Identity | None = None
    branch: int = 0
    commit: Commit | None = None
    states: tuple[OperatorState, ...] = ()
    plan: Plan | None = None
    outputs: tuple[Output, ...] = ()
    published: dict[str, int] = {}
    checkpoints: tuple[Checkpoint, ...] = ()
    replayable: int = 1
    repairs: int = 0
    rewound: bool = False
    damaged: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The last committed step; 0 before the first."""
        return 0 if self.commit is None else self.commit.step

    @property
    def clock_ns(self) -> int:
        """The clock of the last committed step; 0 before the first."""
        return 0 if self.commit is None else self.commit.clock_ns
