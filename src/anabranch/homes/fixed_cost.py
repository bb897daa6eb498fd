"""The fixed cost of a run: time that does not depend on how much of it is copied."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_SECONDS = 0.002
"""An upper bound for the fixed cost of a run."""


@dataclass(slots=True)
class FixedCost:
    """The time spent on runs that does not depend on how much of them is copied.

    Checking what a home has of a run, opening the run in the store and creating a file take as long
    for one bin as for ten. Copying fewer bins in a step saves none of that, so it is kept apart
    from the cost of copying. A copy's fixed cost is estimated as the time of the quickest copy,
    with an upper bound in case the disk makes all of them slow.

    >>> fixed_cost = FixedCost()
    >>> for seconds in (0.001, 0.004, 0.009):
    ...     fixed_cost.add_copy(seconds)
    >>> fixed_cost.seconds
    0.003
    """

    _checks: float = 0.0
    _copies: list[float] = field(default_factory=list)

    def add_check(self, seconds: float) -> None:
        """Add the time it took to see what the home has of a run."""
        self._checks += min(seconds, MOST_SECONDS)

    def add_copy(self, seconds: float) -> None:
        """Add the time it took to copy bins of a run."""
        self._copies.append(seconds)

    @property
    def seconds(self) -> float:
        """The sum of all fixed costs."""
        return self._checks + len(self._copies) * min([MOST_SECONDS, *self._copies])
