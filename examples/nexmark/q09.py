"""Query 9: the winning bid of every auction, when the auction expires."""

from examples.nexmark.winning_bids import winning_bids


def query(events):
    return winning_bids(events)
