"""The parts that every pipeline has."""

from __future__ import annotations

from anabranch.coordinator.parts.parts import AnyPart
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.parts.sources import SOURCES

STANDARD: tuple[AnyPart, ...] = (SOURCES, RESCALE)
