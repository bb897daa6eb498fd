"""How much state a step read from and copied to homes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class HomeUse(msgspec.Struct, frozen=True):
    """Bytes of state by origin; all 0 without homes.

    ``moved_bytes`` were copied to the new owners of bins, ahead or on arrival. ``home_bytes`` were
    read at home, ``store_bytes`` from the store because the home lacked them, in ``misses`` reads.
    """

    moved_bytes: int = 0
    home_bytes: int = 0
    store_bytes: int = 0
    misses: int = 0


def total_use(uses: Iterable[HomeUse]) -> HomeUse:
    """The sum of all uses.

    >>> total_use([HomeUse(1, 2), HomeUse(3, 4, 5, 1)])
    HomeUse(moved_bytes=4, home_bytes=6, store_bytes=5, misses=1)
    """
    return HomeUse(*map(sum, zip(*map(msgspec.structs.astuple, uses), strict=True)))
