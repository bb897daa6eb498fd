"""Query 1: prices in another currency."""


def query(events):
    return events.bids.select("auction", "bidder", "0.908 * price as price", "at", "extra")
