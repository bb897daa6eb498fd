"""A fraud rule: a payment of more than three times what its card paid of late is reported.

Of every card the last five amounts are kept, in a list. A card that has not paid for 30 days is
forgotten. Run it in this directory.
"""

from pathlib import Path

import anabranch as ab

CARDS = 40
LAST = 5
TIMES = 3


def payments(partition, start, end):
    """Cards pay in turn, between 20 and 49; now and then one pays far more."""
    numbers = [(row % CARDS, row // CARDS) for row in range(start, end)]
    usual = [20 + (card * 7 + n * 13) % 30 for card, n in numbers]
    return {
        "card": [card for card, _ in numbers],
        "payment": range(start, end),
        "amount": [
            amount * 8 if (card * 5 + n * 3) % 101 == 100 else amount
            for (card, n), amount in zip(numbers, usual, strict=True)
        ],
    }


class FarAbove(ab.Process):
    """The rule: it is not applied before a card has paid five times."""

    recent = ab.ListState("amount bigint", ttl="30 days")

    def on_rows(self, key, rows):
        """Take the card's payments of a step, in order; give an alert for each that is too high."""
        recent, alerts = self.recent.get(), []
        for row in rows:
            mean = sum(recent) / LAST
            if len(recent) == LAST and row.amount > TIMES * mean:
                alerts.append((row.payment, key.card, row.amount, mean))
            recent = [*recent, row.amount][-LAST:]
        self.recent.clear()  # what is appended again lives for 30 days from now
        for amount in recent:
            self.recent.append(amount)
        return alerts


flow = ab.Dataflow("fraud")
source = ab.GeneratorSource(
    payments, "card bigint, payment bigint, amount bigint", rows_per_step=200, rows=800
)
alerts = (
    flow.source("payments", source)
    .key_distribute("by-card", "card")
    .process(
        "far-above", FarAbove, output="payment bigint, card bigint, amount bigint, mean double"
    )
)
alerts.sink("alerts", ab.FileSink("out/fraud", "json"))

status = ab.run(flow, directory="fraud.state").wait()
print(f"{status.step} steps")
files = Path("out/fraud").glob("step-*.json")
print(*sorted(line for file in files for line in file.read_text().splitlines()), sep="\n")
