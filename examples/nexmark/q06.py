"""Query 6: the average of a seller's last ten winning prices, whenever one more is known."""

from examples.nexmark.winning_bids import winning_bids


def last_ten(key, winner, prices):
    prices = [*(prices or []), winner.price][-10:]
    return (key.seller, winner.auction, sum(prices) / len(prices)), prices


def query(events):
    return (
        winning_bids(events)
        .key_distribute("by-seller", "seller")
        .stateful_map(
            "last-ten",
            last_ten,
            state="prices array<bigint>",
            output="seller bigint, auction bigint, price double",
            order_by=["expires", "auction"],
        )
    )
