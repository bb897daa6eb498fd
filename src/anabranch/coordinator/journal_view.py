"""Where a pipeline stands, by its journal alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.protocol.node import Output
from anabranch.records.commit import Checkpoint, Commit
from anabranch.records.leader import Identity
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan


@dataclass(frozen=True, slots=True)
class JournalView:
    """What the journal says.

    ``commit`` is the newest one of the branch (made up from the newest checkpoint where only that
    was copied), ``plan`` the newest revision of the plan after it, if there is one. ``states`` is
    the state at the commit: the commit's own, or that of the newest repair of it. ``outputs`` are
    the committed steps that some sink may lack, oldest first. ``checkpoints`` are the kept ones,
    oldest first; ``replayable`` is the first step from which on all plans and commits are still
    there. ``repairs`` is the number of the newest repair of the commit. ``damaged`` says of each
    checkpoint that cannot be read what is wrong with it; it is none of ``checkpoints``.
    ``rewound``: the branch has no commit of its own yet, so sinks may have output of a later step
    that they have not taken back.
    """

    identity: Identity | None = None
    branch: int = 0
    commit: Commit | None = None
    states: tuple[OperatorState, ...] = ()
    plan: Plan | None = None
    outputs: tuple[Output, ...] = ()
    published: dict[str, int] = field(default_factory=dict)
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
