"""The data plane of these tests."""

from __future__ import annotations

from anabranch.testing.memory_plane import MemoryPlane, hashes_of, owned_bins

__all__ = ["MemoryPlane", "hashes_of", "owned_bins"]
