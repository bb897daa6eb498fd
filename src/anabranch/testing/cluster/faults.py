"""What may go wrong in a simulated cluster, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from anabranch.coordinator.settings import Settings
from anabranch.testing.cluster.requests import drawn_rescaling
from anabranch.testing.plane.memory_plane import Chances


class Fault(StrEnum):
    """Something that goes wrong, or that somebody asks for."""

    KILL_COORDINATOR = "kill coordinator"
    CRASH_COORDINATOR = "crash coordinator"
    KILL_NODE = "kill node"
    CRASH_NODE = "crash node"
    KILL_BOTH = "kill both"
    POWER_CUT = "power cut"
    TAKE_OVER = "take over"
    CONTINUE = "continue the frozen"
    CLOCK_JUMP = "clock jump"
    DISK_FULL = "disk full"
    FAILED_SYNC = "failed sync"
    SLOW_DISK = "slow disk"
    STUCK_STEP = "stuck step"
    DAMAGE = "damage"
    ASK = "ask"
    RESCALE = "rescale"
    QUERY = "query"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad it is in one schedule: chances per action, and in each step."""

    fault: float
    rescale: float
    lost_call: float
    doubled_call: float
    old_telling: float
    #: that a coordinator comes up on another host than the node, and does not find it
    elsewhere: float
    #: that a step comes to something else when it is replayed
    diverging: float
    chances: Chances

    @classmethod
    def drawn(cls, random: Random) -> Weather:
        """Anything from calm to very rough."""
        rough = random.choice((0.0, 0.2, 0.5, 1.0, 1.0, 2.0))
        often = random.choice((0.0, 0.02, 0.1)) * rough
        return cls(
            fault=0.015 * rough,
            rescale=random.choice((0.0, 0.0, 0.006, 0.012)),
            lost_call=often,
            doubled_call=often,
            old_telling=often,
            elsewhere=0.2 * min(rough, 1.0),
            diverging=0.05 * rough,
            chances=Chances(
                retried=0.2 * rough,
                late=0.3 * rough,
                mixed=0.04 * rough,
                unreported=0.04 * rough,
                failed=0.003 * rough,
            ),
        )


CALM = Weather(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, Chances())


def drawn_settings(random: Random, workers: int) -> Settings:
    """How a coordinator is started: mostly with the same number of workers as the one before."""
    drawn = random.random()
    number = None if 0.7 <= drawn < 0.8 else workers if drawn < 0.7 else random.randint(1, 4)
    return Settings(
        workers=number,
        grace_seconds=62.0,
        query_seconds=2.0,
        checkpoint_seconds=random.choice((5.0, 300.0)),
        checkpoint_steps=random.choice((2, 5, 100)),
        max_unpublished_steps=random.choice((2, 64)),
        rescale=drawn_rescaling(random),
    )
