"""What sources and sinks can find out before Spark starts."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Preflight(Protocol):
    """A source or sink that knows before it is opened that opening would fail."""

    def preflight(self, *, fresh: bool) -> None:
        """Raise what ``open`` would raise; change nothing.

        ``fresh``: the pipeline starts for the first time, so nothing is its own yet.
        """
        ...
