"""Query 9 for transformWithState: what ``examples/nexmark/winning_bids.py`` says for Anabranch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

OFFER = "item string, category bigint, seller bigint, us bigint, expires bigint"
BID = "price bigint, us bigint, bidder bigint, channel string, extra string"
WINNER = (
    "auction bigint, item string, category bigint, seller bigint, expires bigint, "
    "bidder bigint, price bigint, channel string, bid_us bigint"
)
"""Times are microseconds: those that state gives back cannot be compared with those of rows."""


class WinningBid(StatefulProcessor):
    """An auction until it expires: what is offered, and the best bid so far."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._offer = handle.getValueState("offer", OFFER)
        self._best = handle.getValueState("best", BID)
        self._early = handle.getListState("early", BID)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ANN401
        """Take the auction and bids, in any order."""
        bids = []
        for row in rows:
            if row.kind == "auction":
                self._offer.update((row.item, row.category, row.seller, row.us, row.expires))
                self._handle.registerTimer(row.expires // 1000)
                bids += [tuple(bid) for bid in self._early.get()]
                self._early.clear()
            else:
                bids.append((row.price, row.us, row.bidder, row.channel, row.extra))
        offer = self._offer.get()
        if offer is None:
            self._early.appendList(bids)
        else:
            self._take([bid for bid in bids if offer[3] <= bid[1] <= offer[4]])
        yield from ()

    def _take(self, bids: list[Any]) -> None:
        best = self._best.get()
        bids += [tuple(best)] if best else []
        if bids:
            self._best.update(min(bids, key=lambda bid: (-bid[0], *bid[1:])))

    def handleExpiredTimer(
        self,
        key: Any,  # noqa: ANN401
        timerValues: Any,  # noqa: ANN401
        expiredTimerInfo: Any,  # noqa: ANN401
    ) -> Iterator[Any]:
        """Tell the winner, if there is one; the auction is over."""
        offer, best = self._offer.get(), self._best.get()
        self._offer.clear()
        self._best.clear()
        if offer and best:
            yield Row(
                auction=key[0],
                item=offer[0],
                category=offer[1],
                seller=offer[2],
                expires=offer[4],
                bidder=best[2],
                price=best[0],
                channel=best[3],
                bid_us=best[1],
            )

    def close(self) -> None:
        """Nothing to close."""
