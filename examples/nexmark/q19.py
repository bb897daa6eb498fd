"""Query 19: the ten highest bids of every auction."""


def query(events):
    return events.bids.key_distribute("by-auction", "auction").top(
        "highest", 10, by="price desc, at, bidder, channel, extra"
    )
