"""The time graph: which inputs of event time reach which operators."""

from __future__ import annotations

from typing import Any

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.handles import Process, ValueState
from anabranch.dataflow.validate import validate
from anabranch.plan.time_graph import time_graph
from anabranch.protocol.time_graph import GraphOperator, TimedInput, TimeGraph
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource


class Ending(Process):
    n = ValueState("n int")

    def on_rows(self, key: Any, rows: Any) -> None:
        self.n.set(len(rows))

    def on_end(self, key: Any) -> Any:
        return (self.n.get(),)


def _graph(flow: Dataflow) -> TimeGraph:
    return time_graph(validate(flow.graph()))


def _source() -> ScriptedSource:
    return ScriptedSource("k string, at timestamp", [EOF])


def test_a_flow_without_times_and_endings_has_none() -> None:
    flow = Dataflow("plain")
    keyed = flow.source("rows", _source()).key_distribute("by-k", "k")
    keyed.aggregate("n", n="count(*)").sink("out", MemorySink())
    assert _graph(flow) == TimeGraph()


def test_the_end_of_input_needs_a_frontier() -> None:
    flow = Dataflow("ending")
    keyed = flow.source("rows", _source()).key_distribute("by-k", "k")
    keyed.process("last", Ending, output="n int").sink("out", MemorySink())
    assert _graph(flow) == TimeGraph(
        (TimedInput("rows", "rows", timed=False),), (GraphOperator("last", "by-k", ("rows",)),)
    )


def test_operators_follow_the_nearest_inputs_and_operators() -> None:
    flow = Dataflow("two")
    slow = flow.source("slow", _source()).assign_timestamps("at", lateness="1 minute")
    fast = flow.source("fast", _source()).assign_timestamps("at", idle="2 seconds")
    both = slow.union(fast).key_distribute("by-k", "k")
    first = both.aggregate("first", n="count(*)", at="max(at)")
    second = first.key_distribute("by-n", "n").aggregate("second", last="max(at)")
    second.sink("out", MemorySink())
    assert _graph(flow) == TimeGraph(
        (
            TimedInput("slow", "slow", True, 60_000_000),
            TimedInput("fast", "fast", True, 0, 2_000_000),
        ),
        (
            GraphOperator("first", "by-k", ("slow", "fast")),
            GraphOperator("second", "by-n", ("first",)),
        ),
    )
