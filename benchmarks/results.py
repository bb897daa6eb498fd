"""What a whole run came to: every case's outcome, or why there is none. Pure."""

from __future__ import annotations

import msgspec

from benchmarks.measure import Batch, Outcome, Spread, measured, overall_rate, rates, times


class Result(msgspec.Struct, frozen=True):
    """A case that was tried; ``failure`` says why it has no outcome.

    ``speed`` is that of a core beside it, 0 if it was not measured.
    """

    workload: str
    subject: str
    warm: int
    outcome: Outcome | None = None
    failure: str = ""
    speed: float = 0.0

    @property
    def name(self) -> str:
        """The name of its case."""
        return f"{self.workload}/{self.subject}"

    def batches(self) -> tuple[Batch, ...]:
        """The batches that count."""
        return () if self.outcome is None else measured(self.outcome, self.warm)

    def rates(self) -> Spread | None:
        """Rows per second over the batches."""
        return rates(self.batches()) if self.batches() else None

    def times(self) -> Spread | None:
        """Seconds over the batches."""
        return times(self.batches()) if self.batches() else None

    def overall(self) -> float | None:
        """Rows per second of the whole run after its warm-up."""
        if self.outcome is None or not self.outcome.batches:
            return None
        return overall_rate(self.outcome, self.warm)


class Results(msgspec.Struct, frozen=True):
    """All cases of a run, and where and when it was."""

    size: str
    machine: dict[str, str]
    results: tuple[Result, ...]

    def find(self, name: str) -> Result | None:
        """A case's result, if it was tried."""
        return next((each for each in self.results if each.name == name), None)

    def workload(self, workload: str) -> tuple[Result, ...]:
        """All results of one workload."""
        return tuple(each for each in self.results if each.workload == workload)

    def with_new(self, newer: Results) -> Results:
        """These results with those of a later run on the same machine in their places.

        The order is that of this run; what is new comes last. A reader is told what was measured
        at another time than the rest.
        """
        latest = {each.name: each for each in (*self.results, *newer.results)}
        anew = ", ".join(dict.fromkeys(each.workload for each in newer.results))
        when = newer.machine.get("when", "later")
        machine = {**self.machine, f"measured anew {when}": anew}
        return Results(self.size, machine, tuple(latest.values()))
