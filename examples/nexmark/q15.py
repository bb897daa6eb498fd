"""Query 15: bids, bidders and auctions of each day, by price."""

from examples.nexmark.price_ranks import AUCTIONS, BIDDERS, BIDS


def query(events):
    return events.bids.key_distribute("by-day", day="date(at)").aggregate(
        "days", **BIDS, **BIDDERS, **AUCTIONS
    )
