"""The bid that wins each auction, told when the auction has expired: for queries 4, 6 and 9."""

import anabranch as ab

BID = "price bigint, at timestamp, bidder bigint, channel string, extra string"
WINNER = (
    "auction bigint, item string, category bigint, seller bigint, expires timestamp, "
    "bidder bigint, price bigint, channel string, bid_at timestamp"
)


class Auction(ab.Process):
    """An auction until it expires: what is offered, and the best bid so far.

    Bids may be read before their auction and wait for it; if there is none, for a minute.
    """

    offer = ab.ValueState(
        "item string, category bigint, seller bigint, at timestamp, expires timestamp"
    )
    best = ab.ValueState(BID)
    early = ab.ListState(BID, ttl="1 minute")

    def on_rows(self, key, rows):
        """Take the auction and bids, in any order."""
        bids = [row for row in rows if row.kind == "bid"]
        for row in rows:
            if row.kind == "auction":
                self.offer.set((row.item, row.category, row.seller, row.at, row.expires))
                self.notify_at(row.expires, "expired")
                bids += self.early
                self.early.clear()
        offer = self.offer.get()
        if offer is None:
            for bid in bids:
                self.early.append(values(bid))
        else:
            self.take([bid for bid in bids if offer.at <= bid.at <= offer.expires])

    def take(self, bids):
        """Keep the best bid: the highest, and of equal ones the first."""
        best = self.best.get()
        bids += [best] if best else []
        if bids:
            self.best.set(min(map(values, bids), key=lambda bid: (-bid[0], *bid[1:])))

    def on_notify(self, key, at, name):
        """Tell the winner, if there is one; the auction is over."""
        offer, best = self.offer.get(), self.best.get()
        self.offer.clear()
        self.best.clear()
        if best is None:
            return None
        offered = (key.auction, offer.item, offer.category, offer.seller, offer.expires)
        return (*offered, best.bidder, best.price, best.channel, best.at)


def values(bid):
    """What is kept of a bid, in the order that decides between bids of the same price."""
    return bid.price, bid.at, bid.bidder, bid.channel, bid.extra


def winning_bids(events):
    """A row for each auction that had a bid in time, when the auction expires."""
    auctions = events.auctions.select("id", "item", "category", "seller", "at", "expires")
    bids = events.bids.select("auction", "bidder", "price", "channel", "at", "extra")
    both = events.flow.union(
        "kind", auction=auctions.key_by(auction="id"), bid=bids.key_by("auction")
    )
    return both.distribute_by_key("by-auction").process("winning-bid", Auction, output=WINNER)
