"""Query 18: the last bid of every bidder for every auction."""


def query(events):
    return (
        events.bids.key_distribute("by-pair", "auction", "bidder")
        .top("last-bid", 1, by="at desc, price desc, channel, extra")
        .select("auction", "bidder", "price", "channel", "url", "at", "extra")
    )
