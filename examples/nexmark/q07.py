"""Query 7: the highest bids of every ten seconds.

A window is one key, which one worker would have to find the highest bids for. So bids are dealt
out to lanes first, and only the highest of each lane are compared.
"""

import anabranch as ab

WINDOW = ab.tumbling("10 seconds")


def query(events):
    return (
        events.bids.select("auction", "bidder", "price", "at", "extra")
        .key_distribute("by-lane", lane="price % 64")
        .window(WINDOW)
        .top("highest-of-lane", 1, by="price desc", ties=True)
        .select("auction", "bidder", "price", "at", "extra", "window_end")
        .key_distribute("by-window", "window_end")
        .window(WINDOW)
        .top("highest", 1, by="price desc", ties=True)
        .select("auction", "bidder", "price", "at", "extra")
    )
