"""The driver performs what the machine decides."""

from anabranch.coordinator.driver.loop import Driver
from anabranch.coordinator.driver.ports import Nodes

__all__ = ["Driver", "Nodes"]
