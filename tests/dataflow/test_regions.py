"""Random chains of operators: regions are what a small model of the rules says they are."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.validate import validate
from anabranch.errors import InvalidDataflow
from tests.dataflow.fakes import sink, source

VERBS = ["where", "select", "with_columns", "key_by", "distribute", "local", "stateful_map"]
REGION_WORDS = ("key_by alone", "it keeps state", "there is no key_by")


class Step(NamedTuple):
    """Where the rows are after an operator, in the model."""

    region: int | None
    waiting: bool


def build(verbs: list[str]) -> Dataflow:
    flow = Dataflow("chain")
    stream = flow.source("in", source("k int, b boolean"))
    for i, verb in enumerate(verbs):
        match verb:
            case "where":
                stream = stream.where("b")
            case "select":
                stream = stream.select("b", "k")
            case "with_columns":
                stream = stream.with_columns(c="b")
            case "key_by":
                stream = stream.key_by("k")
            case "distribute":
                stream = stream.distribute_by_key(f"d{i}")
            case "local":
                stream = stream.local()
            case _:
                stream = stream.stateful_map(f"s{i}", max, output="k int, b boolean")
    stream.sink("out", sink())
    return flow


def model(verbs: list[str]) -> tuple[list[Step], int]:
    """Each operator's place, and how many operators are out of place.

    After an operator out of place, those that lack the same thing are not counted again.
    """
    steps, misplaced = [], 0
    region: int | None = None
    waiting = excused = False
    for id, verb in enumerate(verbs, start=1):
        if verb == "key_by":
            waiting = True
        elif verb == "local":
            region, waiting, excused = None, False, False
        elif verb == "distribute":
            misplaced += not waiting
            region, waiting, excused = id, False, False
        elif verb == "stateful_map" and (waiting or (region is None and not excused)):
            misplaced += 1
            waiting, excused = False, True
        steps.append(Step(region, waiting))
    return steps, misplaced


@given(st.lists(st.sampled_from(VERBS), max_size=9))
def test_regions_follow_the_rules(verbs: list[str]) -> None:
    steps, misplaced = model(verbs)
    try:
        typed = validate(build(verbs).graph())
    except InvalidDataflow as error:
        whats = [problem.what for problem in error.problems]
        assert all(what.startswith(REGION_WORDS) for what in whats)
        assert len(whats) == misplaced > 0
    else:
        assert misplaced == 0
        assert places(typed, len(verbs)) == steps


def places(typed: Typed, count: int) -> list[Step]:
    found = []
    for id in range(1, count + 1):
        assert (typed.key(id) is None) == (typed.region(id) is None)
        found.append(Step(typed.region(id), typed.nodes[id].next_key is not None))
    return found
