"""Byte counts as text."""

from __future__ import annotations


def size(count: float) -> str:
    """A byte count in a readable unit.

    >>> size(0), size(2048), size(5 << 30)
    ('0 B', '2.0 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
