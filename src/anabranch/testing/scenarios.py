"""The scenarios that come with the kit, by name."""

from __future__ import annotations

from enum import StrEnum

from anabranch.testing.join import join
from anabranch.testing.kinds import kinds
from anabranch.testing.scenario import Scenario
from anabranch.testing.shop import Customers, shop


class Simulated(StrEnum):
    """What is simulated: the default, a shop; two sources with a join; all kinds of both ends."""

    SHOP = "shop"
    JOIN = "join"
    KINDS = "kinds"


def scenario_of(
    scenario: str = Simulated.SHOP, script: int = 0, customers: str | None = None
) -> Scenario:
    """A scenario by its name; only the shop has customers of several kinds.

    A kept seed says the same, by the same names, and its number.
    """
    if Simulated(scenario) is Simulated.SHOP:
        return shop(script, customers=Customers(customers or Customers.SOME))
    if customers is not None:
        raise ValueError("only the shop has customers of several kinds")
    return join(script) if Simulated(scenario) is Simulated.JOIN else kinds(script)
