"""Query 20: bids with what they are for, in category 10.

Bids and auctions come in any order. Nobody bids an hour before or after an auction is opened.
"""


def query(events):
    auctions = events.auctions.where("category = 10").select(
        "id", "item", "description", "initial_bid", "reserve", "at as opened", "expires", "seller"
    )
    return events.bids.key_by("auction").join(
        "expanded", auctions.key_by("id"), region="by-auction", ttl="1 hour"
    )
