"""Query 2: bids for some auctions."""


def query(events):
    return events.bids.where("auction % 123 = 0").select("auction", "price")
