"""Timers in plain Python: what a class that sets timers should be called with, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import anabranch as ab
from anabranch.records.times import EARLIEST, END_OF_TIME, to_microseconds
from tests.operators.keyed_rows import hash_of
from tests.operators.timer_steps import Given

Order = tuple[str, int, str, str]
"""What to do: "set" or "cancel"; a time, a name, and a clock."""


def reaction(name: str, at: int) -> list[Order]:
    """What a timer of this name does when it fires."""
    reactions: dict[str, list[Order]] = {
        "tick": [("set", at + 7, "tick", "event")],
        "back": [("set", at - 10, "forth", "event")],
        "twin": [("set", at + 3, "y", "event"), ("set", at, "x", "event")],
        "stop": [("cancel", 0, "tick", ""), ("cancel", 0, "x", "")],
        "wind": [("set", at, "tock", "step")],
        "tock": [("set", at + 2, "x", "event")],
    }
    return reactions.get(name, [])


class Ordered(ab.Process):
    """Does what its rows and the names of its timers say, and shows when it was called."""

    count = ab.ValueState("n bigint")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        for row in rows:
            if row.op != "count":
                self._do((row.op, row.arg, row.name, "event" if row.op == "set" else "step"))
        self.count.set((self.count.get() or 0) + len(rows))
        return key.who, f"rows n={self.count.get()} D={to_microseconds(self.frontier)}"

    def on_notify(self, key: Any, at: datetime, name: str) -> Any:
        self.count.set((self.count.get() or 0) + 1)
        for order in reaction(name, to_microseconds(at)):
            self._do(order)
        shown = f"{name}@{to_microseconds(at)} n={self.count.get()}"
        return key.who, f"{shown} D={to_microseconds(self.frontier)}"

    def _do(self, order: Order) -> None:
        op, at, name, clock = order
        if op == "cancel":
            self.cancel(name)
        else:
            self.notify_at(at, name, clock="event" if clock == "event" else "step")


@dataclass
class TimerModel:
    """The timers of all keys: when each was asked for, and when it is due by its clock."""

    spread: int = 1 << 32
    timers: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    frontier: int = EARLIEST
    overdue: int = 0

    def step(
        self, fired: Sequence[Given], data: Sequence[Given], until: int, now_ns: int
    ) -> list[tuple[str, str, int]]:
        """The output of a step, in its order."""
        self.since, self.until, self.now_ns = self.frontier, until, now_ns
        self.ends = self.since < until == END_OF_TIME
        self.reached: dict[str, int] = {}
        self.current: tuple[str, int] | None = None
        self.firing, self.done = True, set[tuple[str, str, str]]()
        self.set_late = set[tuple[str, str, str]]()
        output = self._rows(fired, self.since)
        notified = list(self._notifications())
        output += sorted(notified, key=lambda made: (made[2], self._hash(made[0])))
        self.firing, self.frontier = False, until
        output += self._rows(data, until)
        late = [key for key in self.set_late if key in self.timers]
        self.overdue += sum(self._is_due(key[1], self.timers[key][0]) for key in late)
        return output

    def due(self, clock: str) -> dict[tuple[str, str], int]:
        """When the waiting timers of a clock are due."""
        return {(w, n): due for (w, c, n), (_, due) in self.timers.items() if c == clock}

    def _rows(self, rows: Sequence[Given], frontier: int) -> list[tuple[str, str, int]]:
        output = []
        for who in dict.fromkeys(row.who for row in rows):
            own = [row for row in rows if row.who == who]
            for row in own:
                if row.op == "cancel":
                    self._cancel(who, row.name)
                elif row.op != "count":
                    clock = "event" if row.op == "set" else "step"
                    self._set(who, row.arg, row.name, clock, frontier)
            self.counts[who] = self.counts.get(who, 0) + len(own)
            text = f"rows n={self.counts[who]} D={_shown(frontier)}"
            output.append((who, text, max(row.at for row in own)))
        return output

    def _notifications(self) -> list[tuple[str, str, int]]:
        output = []
        while waiting := [key for key in self.timers if self._fires(key)]:
            key = min(waiting, key=self._place)
            who, clock, name = key
            asked, due = self.timers.pop(key)
            self.done.add(key)
            time, frontier = due - 1, min(due, self.until)
            if clock == "event":
                self.reached[who] = frontier
            else:
                end = self.reached.get(who, self.since)
                time = frontier = end if self.ends else self.until
            self.current = (clock, due)
            self.counts[who] = self.counts.get(who, 0) + 1
            for op, at, other, by in reaction(name, asked):
                if op == "cancel":
                    self._cancel(who, other)
                else:
                    self._set(who, at, other, by, time)
            self.current = None
            text = f"{name}@{asked} n={self.counts[who]} D={_shown(frontier)}"
            output.append((who, text, time))
        return output

    def _set(self, who: str, asked: int, name: str, clock: str, reached: int) -> None:
        key = (who, clock, name)
        if self.ends and key in self.done:
            self.timers.pop(key, None)
            return
        if clock == "event":
            due = max(asked, reached) + 1
        else:
            due = asked * 1000 if self.firing else max(asked * 1000, self.now_ns + 1)
            if self.current is not None and self.current[0] == "step":
                due = max(due, self.current[1])
        self.timers[key] = (asked, due)
        if not self.firing:
            self.set_late.add(key)

    def _cancel(self, who: str, name: str) -> None:
        for clock in ("event", "step"):
            self.timers.pop((who, clock, name), None)

    def _fires(self, key: tuple[str, str, str]) -> bool:
        asked, due = self.timers[key]
        if self.ends:
            return True
        if key[1] == "event":
            return asked < self.until
        return due <= self.now_ns

    def _is_due(self, clock: str, asked: int) -> bool:
        return asked < self.until if clock == "event" else asked * 1000 <= self.now_ns

    def _place(self, key: tuple[str, str, str]) -> tuple[Any, ...]:
        (who, clock, name), (asked, due) = key, self.timers[key]
        return (clock == "step", due, asked, self._hash(who), who, name)

    def _hash(self, who: str) -> int:
        return signed_hash(who, self.spread)


def signed_hash(who: str, spread: int = 1 << 32) -> int:
    """A key's hash as the order of rows has it."""
    number = hash_of((who,), spread)
    return number if number < 1 << 63 else number - (1 << 64)


def _shown(frontier: int) -> int:
    return max(frontier, to_microseconds(datetime(1, 1, 1)))  # noqa: DTZ001
