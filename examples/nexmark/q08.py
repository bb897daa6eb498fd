"""Query 8: people who joined and opened an auction within the same ten seconds."""

import anabranch as ab

WINDOW = ab.tumbling("10 seconds")


def query(events):
    people = events.people.select("id", "name")
    sellers = events.auctions.select("seller", "id as auction")
    return (
        people.key_by("id")
        .join("new-sellers", sellers.key_by(id="seller"), region="by-person", window=WINDOW)
        .window(WINDOW)
        .top("once", 1, by="auction")
        .select("id", "name", "window_start")
    )
