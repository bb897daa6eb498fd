"""Progress as arithmetic: signed counts of times, capabilities, and the frontiers that follow.

Everything here is a value or a sum. Nothing waits, reads a clock or talks to Spark.
"""

from anabranch.progress.antichain import Antichain, MutableAntichain
from anabranch.progress.capability import Account, Capability, CapabilityRef, OutputPort
from anabranch.progress.change_batch import ChangeBatch, Time
from anabranch.progress.inputs import InputHandle, ordered_input, unordered_input
from anabranch.progress.notificator import Notificator
from anabranch.progress.operator_builder import (
    Inlet,
    OperatorBuilder,
    notified_operator,
    operator,
    source,
)
from anabranch.progress.outlet import Outlet, OutputSession
from anabranch.progress.probe import Probe
from anabranch.progress.scope import Scope
from anabranch.progress.summaries import ZERO, Delay
from anabranch.progress.topology import InputPort, Topology
from anabranch.progress.tracker import Held, Tracker

__all__ = [
    "ZERO",
    "Account",
    "Antichain",
    "Capability",
    "CapabilityRef",
    "ChangeBatch",
    "Delay",
    "Held",
    "Inlet",
    "InputHandle",
    "InputPort",
    "MutableAntichain",
    "Notificator",
    "OperatorBuilder",
    "Outlet",
    "OutputPort",
    "OutputSession",
    "Probe",
    "Scope",
    "Time",
    "Topology",
    "Tracker",
    "notified_operator",
    "operator",
    "ordered_input",
    "source",
    "unordered_input",
]
