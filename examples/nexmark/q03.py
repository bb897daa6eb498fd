"""Query 3, local items: who sells in Oregon, Idaho or California, and what, in category 10.

People and auctions come in any order. Nobody opens an auction an hour before or after joining.
"""


def query(events):
    people = events.people.where("state in ('OR', 'ID', 'CA')").select(
        "id as seller", "name", "city", "state"
    )
    auctions = events.auctions.where("category = 10").select("seller", "id as auction")
    return (
        auctions.key_by("seller")
        .join("local-items", people.key_by("seller"), region="by-seller", ttl="1 hour")
        .select("name", "city", "state", "auction")
    )
