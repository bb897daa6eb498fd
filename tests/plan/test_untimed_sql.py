"""A dataflow without event times moves the columns and runs the SQL that it always did.

``untimed_sql.json`` has a digest of these for every dataflow, from before there were event times.
Whoever changes the SQL of all dataflows writes it anew: ``python -m tests.plan.test_untimed_sql``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.plan.boundary import CLOCK, FIRED, TIME
from anabranch.plan.lower import lower
from tests.plan import flows
from tests.plan.crossings import crossings, everything, queries

KEPT = Path(__file__).with_name("untimed_sql.json")


def digest(build: Callable[[], Dataflow]) -> str:
    texts = everything(lower(flows.typed(build())))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@pytest.mark.parametrize("build", flows.ALL)
def test_columns_and_sql_are_as_before(build: Callable[[], Dataflow]) -> None:
    assert digest(build) == json.loads(KEPT.read_text())[build.__name__]


@pytest.mark.parametrize("build", flows.ALL)
def test_nothing_of_event_time_is_carried_or_cut(build: Callable[[], Dataflow]) -> None:
    physical = lower(flows.typed(build()))
    assert not any(edge.timed or edge.fired for level in physical.levels for edge in level.inputs)
    assert not any(query.cuts for crossing in crossings(physical) for query in queries(crossing))
    for text in everything(physical):
        assert not any(name in text for name in (TIME, FIRED, CLOCK))


if __name__ == "__main__":
    found = {build.__name__: digest(build) for build in flows.ALL}
    KEPT.write_text(json.dumps(found, indent=2) + "\n")
