"""Query 5, hot items: every two seconds, the auctions with the most bids of the last ten."""

import anabranch as ab


def query(events):
    return (
        events.bids.key_distribute("by-auction", "auction")
        .window(ab.sliding("10 seconds", every="2 seconds"))
        .aggregate("bids", n="count(*)")
        .key_distribute("by-window", "window_end")
        .window(ab.tumbling("2 seconds"))
        .top("hottest", 1, by="n desc", ties=True)
        .select("auction", "n", "window_start", "window_end")
    )
