"""Query 11: how often people bid before they rest for ten seconds."""

import anabranch as ab


def query(events):
    return (
        events.bids.key_distribute("by-bidder", "bidder")
        .window(ab.session("10 seconds"))
        .aggregate("visits", n="count(*)")
        .select("bidder", "n", "window_start", "window_end")
    )
