"""Query 16: bids, bidders and auctions of each channel and day, by price."""

from examples.nexmark.price_ranks import AUCTIONS, BIDDERS, BIDS


def query(events):
    return events.bids.key_distribute("by-channel", "channel", day="date(at)").aggregate(
        "channels", minute="max(date_format(at, 'HH:mm'))", **BIDS, **BIDDERS, **AUCTIONS
    )
