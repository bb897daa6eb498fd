"""Query 4: the average winning price of each category, anew whenever auctions expire."""

from examples.nexmark.winning_bids import winning_bids


def query(events):
    return (
        winning_bids(events)
        .key_distribute("by-category", "category")
        .aggregate("average", price="avg(price)")
    )
