"""What runs cost however little is copied of them."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_SECONDS = 0.002
"""The most that a run is taken to cost whatever is copied of it."""


@dataclass(slots=True)
class FixedCost:
    """The time of looking after runs that does not depend on how much is copied of them.

    To see what of a run is here, to open it in the store and to make a file takes as long for one
    bin as for ten. Copying fewer bins in a step saves none of it, so it is told apart from what
    copying costs. Of copies it is what the quickest of them took; where all are slow, the disk is,
    so there is a bound to it.

    >>> fixed_cost = FixedCost()
    >>> for seconds in (0.001, 0.004, 0.009):
    ...     fixed_cost.copied(seconds)
    >>> fixed_cost.seconds
    0.003
    """

    _looking: float = 0.0
    _copies: list[float] = field(default_factory=list)

    def looked(self, seconds: float) -> None:
        """So long it took to see what of a run is here."""
        self._looking += min(seconds, MOST_SECONDS)

    def copied(self, seconds: float) -> None:
        """So long it took to copy something of a run."""
        self._copies.append(seconds)

    @property
    def seconds(self) -> float:
        """All of it together."""
        return self._looking + len(self._copies) * min([MOST_SECONDS, *self._copies])
