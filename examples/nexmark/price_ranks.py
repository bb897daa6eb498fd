"""Aggregates over all bids and those of three ranges of prices: for queries 15, 16 and 17."""

RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 and price < 1000000",
    "rank3": "price >= 1000000",
}


def by_rank(what, expression):
    """The same aggregate of each rank: `rank1_bids`, and so on."""
    return {
        f"{rank}_{what}": f"{expression} filter (where {condition})"
        for rank, condition in RANKS.items()
    }


BIDS = by_rank("bids", "count(*)")
BIDDERS = by_rank("bidders", "count(distinct bidder)")
AUCTIONS = by_rank("auctions", "count(distinct auction)")
