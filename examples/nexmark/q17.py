"""Query 17: the bids of each auction and day, by price, and their prices."""

from examples.nexmark.price_ranks import BIDS


def query(events):
    return events.bids.key_distribute("by-auction", "auction", day="date(at)").aggregate(
        "auctions",
        **BIDS,
        least="min(price)",
        greatest="max(price)",
        mean="avg(price)",
        total="sum(price)",
    )
