"""Query 0: bids as they are, to see what passing rows on costs."""


def query(events):
    return events.bids.select("auction", "bidder", "price", "at", "extra")
