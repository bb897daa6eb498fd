"""The driver performs the effects that the machine decides on."""

from anabranch.coordinator.driver.loop import Driver
from anabranch.coordinator.driver.peer_link import Nodes

__all__ = ["Driver", "Nodes"]
