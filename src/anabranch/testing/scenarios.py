"""The scenarios that come with the kit, by name."""

from __future__ import annotations

from enum import StrEnum

from anabranch.testing.join import join
from anabranch.testing.kinds import kinds
from anabranch.testing.scenario import Scenario
from anabranch.testing.shop import Customers, shop
from anabranch.testing.times import times

OFTEN_AWAY = 0.6
"""How often a sink is away in that scenario."""


class Simulated(StrEnum):
    """What is simulated.

    The default, a shop; two sources with a join; all kinds of both ends; a shop whose sinks are
    often away; windows, sessions, timers and a join over event time.
    """

    SHOP = "shop"
    JOIN = "join"
    KINDS = "kinds"
    AWAY = "away"
    TIMES = "times"


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
    match Simulated(scenario):
        case Simulated.JOIN:
            return join(script)
        case Simulated.KINDS:
            return kinds(script)
        case Simulated.TIMES:
            return times(script)
        case _:
            return shop(script, sinks_away=OFTEN_AWAY)
