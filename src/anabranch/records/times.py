"""Event times: 64-bit microseconds since 1970, and the times that stand for none."""

from __future__ import annotations

EARLIEST = -(1 << 62)
"""The frontier before any time is known: every row may still come."""

END_OF_TIME = 1 << 62
"""The frontier after the last row: nothing more will come."""

TOO_FAR = END_OF_TIME + 1
"""The time of a row that is further ahead than its stream allows: it is late everywhere."""
