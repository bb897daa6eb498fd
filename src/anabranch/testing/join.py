"""A scenario with two sources: orders that are joined with their customers.

The sources have different partitions, and it depends on the schedule which of their rows come in
one step. An order whose customer is not known yet waits; a customer may come late, or never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.handles import ListState, Process, ValueState
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sources.generator import GeneratorSource
from anabranch.sources.scripted import EOF, PAUSE, ScriptedSource
from anabranch.testing.scenario import Outcome, Positions, Row, Scenario

PARTITIONS = 3
ORDERS_PER_STEP = 4
STEPS = 10
NAMES = "abcdefghij"
NEVER = 0.2
"""How many of the customers never come."""

PAUSES = (0, 0, 2, 6, 10)
"""How often the customers are asked for in vain, before a page of them."""


def join(script: int = 0, steps: int = STEPS) -> Scenario:
    """Orders of so many steps with random customers, the same for the same ``script``."""
    model = JoinModel(Random(script), steps)

    def make(directory: Path) -> Dataflow:
        flow = Dataflow("join")
        customers = flow.source(
            "customers", ScriptedSource("customer string, city string", model.script)
        )
        orders = flow.source(
            "orders",
            GeneratorSource(
                model.orders_at,
                "id bigint, buyer string",
                partitions=PARTITIONS,
                rows_per_step=ORDERS_PER_STEP,
                rows=len(model.orders),
            ),
        )
        matched = (
            flow.union(
                "input",
                customer=customers.key_by("customer"),
                order=orders.select("id", "buyer as customer").key_by("customer"),
            )
            .distribute_by_key("by-customer")
            .process("match", Match, output="id bigint, customer string, city string, place int")
        )
        found = matched.split(found="city is not null", lost="true")
        found["found"].sink("matched", MemorySink())
        found["lost"].select("id", "customer", "'no customer' as why").sink("lost", MemorySink())
        (
            found["found"]
            .where("place > 1")
            .with_columns(again="true")
            .key_distribute("by-city", "city")
            .aggregate("cities", n="count(*)", last="max(id)")
            .sink("counts", FileSink(directory / "counts", format="json"))
        )
        return flow

    return Scenario(make, model.check, model.live)


class Match(Process):
    """The city of a customer, how many orders there were, and those that wait for the city."""

    city = ValueState("city string")
    bought = ValueState("n int")
    waiting = ListState("id bigint, nth int")

    def on_rows(self, key: Any, rows: Any) -> list[Row]:  # noqa: ANN401
        """Give orders with their city and their place among the customer's orders."""
        given: list[Row] = []
        for row in rows:
            if row.input == "customer":
                self.city.set(row.city)
                given += [(o.id, key.customer, row.city, o.nth) for o in self.waiting]
                self.waiting.clear()
                continue
            place = (self.bought.get() or 0) + 1
            self.bought.set(place)
            if self.city.get() is None:
                self.waiting.append((row.id, place))
            else:
                given.append((row.id, key.customer, self.city.get(), place))
        return given

    def on_end(self, key: Any) -> list[Row]:  # noqa: ANN401
        """Give the orders whose customer never came."""
        return [(order.id, key.customer, None, order.nth) for order in self.waiting]


class JoinModel:
    """What the join must give. It keeps no state: an order is joined when both are there."""

    def __init__(self, random: Random, steps: int) -> None:
        """Draw who comes when, and who orders."""
        names = random.sample(NAMES, len(NAMES))
        coming = names[: round(len(names) * (1 - NEVER))]
        self.customers: list[tuple[str, str]] = [(who, random.choice("xyz")) for who in coming]
        self.script = list(_paged(random, self.customers))
        self.orders = [random.choice(NAMES) for _ in range(steps * ORDERS_PER_STEP)]

    def orders_at(self, partition: int, start: int, end: int) -> dict[str, list[Any]]:
        """Rows of a partition: orders are dealt out in turn, and their number is their id."""
        ids = [number * PARTITIONS + partition for number in range(start, end)]
        return {"id": ids, "buyer": [self.orders[number] for number in ids]}

    def live(self, positions: Positions) -> Mapping[str, int]:
        """How many entries each state has where the sources stand there."""
        customers, orders = _read(positions)
        cities = dict(self.customers[:customers])
        bought = Counter(self.orders[:orders])
        return {
            "match.city": len(cities),
            "match.bought": len(bought),
            "match.waiting": sum(n for who, n in bought.items() if who not in cities),
            "cities": len({cities[who] for who, n in bought.items() if n > 1 and who in cities}),
        }

    def check(self, outcome: Outcome) -> None:
        """Compare output, step by step, and state."""
        came, read = self._arrivals(outcome)
        assert len(read) == len(self.orders), f"R6: {len(read)} orders were read"
        assert len(came) == len(self.customers), f"R6: {len(came)} customers were read"
        cities, places = dict(self.customers), self._places(read)
        matched: dict[int, list[Row]] = {}
        lost: list[Row] = []
        for id, who in enumerate(self.orders):
            if who in came:
                row = (id, who, cities[who], places[id])
                matched.setdefault(max(came[who], read[id]), []).append(row)
            else:
                lost.append((id, who, "no customer"))
        for step, rows in matched.items():
            found = outcome.output["matched"].get(step, [])
            same = sorted(row[:3] for row in found) == sorted(row[:3] for row in rows)
            swapped = same and sorted(found) != sorted(rows)
            assert not swapped, f"R7: step {step} took rows in another order: {sorted(found)}"
        outcome.check("matched", matched)
        outcome.check("counts", _counted(matched))
        last = max(outcome.output["lost"], default=0)
        assert last not in outcome.steps, f"step {last} gave orders up before the input ended"
        outcome.check("lost", {last: lost} if lost else {})
        self._check_state(outcome, places)

    def _arrivals(self, outcome: Outcome) -> tuple[dict[str, int], dict[int, int]]:
        """In which step each customer came, and in which each order was read."""
        came: dict[str, int] = {}
        read: dict[int, int] = {}
        for step in outcome.steps:
            customers, orders = _read(outcome.positions[step])
            came |= {who: step for who, _ in self.customers[len(came) : customers]}
            read |= dict.fromkeys(range(len(read), orders), step)
        return came, read

    def _places(self, read: Mapping[int, int]) -> dict[int, int]:
        """The place of each order among its customer's: by step, partition and row (R7)."""
        seen: Counter[str] = Counter()
        found = {}
        for id in sorted(read, key=lambda id: (read[id], id % PARTITIONS, id)):
            seen[self.orders[id]] += 1
            found[id] = seen[self.orders[id]]
        return found

    def _check_state(self, outcome: Outcome, places: Mapping[int, int]) -> None:
        cities = dict(self.customers)
        held = {row["customer"]: row["city"] for row in outcome.state["match.city"]}
        assert held == cities, f"R9: state of 'match.city' is {held}, not {cities}"
        bought = {row["customer"]: row["n"] for row in outcome.state["match.bought"]}
        wanted = dict(Counter(self.orders))
        assert bought == wanted, f"R9: state of 'match.bought' is {bought}, not {wanted}"
        waiting = [(r["customer"], r["id"], r["nth"]) for r in outcome.state["match.waiting"]]
        left = [(who, id, places[id]) for id, who in enumerate(self.orders) if who not in cities]
        assert sorted(waiting) == sorted(left), (
            f"R9: state of 'match.waiting' is {waiting}, not {left}"
        )


def _paged(random: Random, customers: Sequence[tuple[str, str]]) -> Iterator[object]:
    """Pages of one or two customers, with pauses; then the end."""
    rest = list(customers)
    while rest:
        yield from [PAUSE] * random.choice(PAUSES)
        size = random.randint(1, 2)
        yield rest[:size]
        del rest[:size]
    yield EOF


def _read(positions: Positions) -> tuple[int, int]:
    """How many customers and how many orders were read."""
    customers, orders = positions.get("customers", {}), positions.get("orders", {})
    return customers.get("rows", 0), orders.get("rows", 0)


def _counted(matched: Mapping[int, Sequence[Row]]) -> dict[int, list[Row]]:
    """By step, the cities with a repeated order in it: how many there were, and the largest id."""
    found: dict[int, list[Row]] = {}
    ids: dict[str, list[int]] = {}
    for step in sorted(matched):
        changed = set()
        for id, _, city, place in matched[step]:
            if place > 1:
                ids.setdefault(city, []).append(id)
                changed.add(city)
        if changed:
            found[step] = [(city, len(ids[city]), max(ids[city])) for city in changed]
    return found
