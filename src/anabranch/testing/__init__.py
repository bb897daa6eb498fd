"""The kit for tests: a manual clock, a data plane in memory, a faulty disk, a simulated cluster."""

from anabranch.testing.clock import ManualClock
from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.cluster.rule_broken import RuleBroken
from anabranch.testing.faulty_disk import Crash, FaultyDisk
from anabranch.testing.plane.memory_plane import Chances, MemoryPlane
from anabranch.testing.plane.plain_frames import Recorder
from anabranch.testing.scenario import Outcome, Scenario
from anabranch.testing.simulation import Simulation

__all__ = [
    "Chances",
    "Crash",
    "FaultyDisk",
    "ManualClock",
    "MemoryPlane",
    "Outcome",
    "Recorder",
    "RuleBroken",
    "Scenario",
    "SimulatedCluster",
    "Simulation",
]
