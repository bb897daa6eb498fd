"""Orders with the price of the day: a stream joined with data that changes now and then.

Prices and orders are united under one key, the product, and meet in one operator. An order for a
product without a price waits until there is one. Run it in this directory.
"""

from pathlib import Path

import anabranch as ab

# A list is what one step reads. In earnest these would be two FileSources.
PRICES = [[("pen", 150), ("ink", 700)], [("pen", 175)], [("cap", 1200), ("ink", 650)]]
ORDERS = [
    [(1, "pen", 2), (2, "cap", 1), (3, "ink", 1)],
    [(4, "pen", 10), (5, "cap", 3)],
    [(6, "ink", 2), (7, "cap", 1), (8, "jug", 1), (9, "pen", 1)],
]


class Priced(ab.Process):
    """The price of a product, and the orders that wait for it."""

    price = ab.ValueState("cents bigint")
    waiting = ab.ListState("id bigint, pieces bigint")

    def on_rows(self, key, rows):
        """Take prices and orders. Within a step prices come first: their source is named first."""
        priced = []
        for row in rows:
            if row.input == "price":
                self.price.set(row.cents)
                priced += [self.costed(key, order) for order in self.waiting]
                self.waiting.clear()
            elif self.price.get() is None:
                self.waiting.append((row.id, row.pieces))
            else:
                priced.append(self.costed(key, row))
        return priced

    def on_end(self, key):
        """Give the orders for which no price ever came."""
        return [(order.id, key.product, None) for order in self.waiting]

    def costed(self, key, order):
        """An order with what it costs."""
        return (order.id, key.product, order.pieces * self.price.get())


flow = ab.Dataflow("enrichment")
prices = ab.ScriptedSource("product string, cents bigint", [*PRICES, ab.EOF])
orders = ab.ScriptedSource("id bigint, product string, pieces bigint", [*ORDERS, ab.EOF])
both = flow.union(
    "input",
    price=flow.source("prices", prices).key_by("product"),
    order=flow.source("orders", orders).key_by("product"),
)
priced = both.distribute_by_key("by-product").process(
    "priced", Priced, output="id bigint, product string, cost bigint"
)
priced.sink("costs", ab.FileSink("out/costs", "json"))

ab.run(flow, directory="enrichment.state").wait()
lines = sorted(
    f"step {int(file.name.split('-')[1])}: {line}"
    for file in Path("out/costs").glob("step-*.json")
    for line in file.read_text().splitlines()
)
print(*lines, sep="\n")
