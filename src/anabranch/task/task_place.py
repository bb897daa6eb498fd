"""Where a task stands: its attempt, its step and the step's clock."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.messages import Attempt


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The task's attempt, which names its files, and the step's clock."""

    step: int
    revision: int
    attempt: Attempt
    clock_ns: int = 0

    def file_name(self, room: str, operator: str, extension: str) -> str:
        """A name in the store that no other attempt uses."""
        a = self.attempt
        stem = f"{self.step:012d}-{self.revision}-{a.group}-{a.level}-{a.worker}-{a.attempt}"
        return f"{room}/{operator}/{stem}.{extension}"
