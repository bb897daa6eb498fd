"""A source that separates malformed rows is a source, two conditions and a sink."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dataflow.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.graph import SelectNode, SinkNode, SourceNode, WhereNode
from anabranch.dataflow.validate import validate
from anabranch.errors import InvalidDataflow
from anabranch.protocol.sinks import DroppedRows
from anabranch.sinks.memory import MemorySink
from anabranch.sources.files import FileSource


def files(malformed: str) -> FileSource:
    return FileSource("in", "json", "k string, `a b` bigint", malformed=malformed)


def test_by_default_nothing_is_separated() -> None:
    flow = Dataflow("plain")
    flow.source("rows", files("fail")).sink("out", MemorySink())
    assert [node.kind for node in flow.graph().nodes] == ["source", "sink"]


@pytest.mark.parametrize("malformed", ["drop", "dead-letter"])
def test_the_well_formed_rows_go_on_and_the_others_to_a_sink(malformed: str) -> None:
    letters = MemorySink()
    given: dict[str, Any] = {"dead_letter": letters} if malformed == "dead-letter" else {}
    flow = Dataflow("separated")
    flow.source("rows", files(malformed), **given).sink("out", MemorySink())
    graph = flow.graph()
    source, bad, _, dead, good, kept, _ = graph.nodes
    assert isinstance(source, SourceNode)
    assert source.source.schema.names == ["k", "a b", "_raw", "_file"]
    assert isinstance(bad, WhereNode)
    assert bad.condition == "`_raw` is not null"
    assert isinstance(dead, SinkNode)
    assert (dead.name, dead.sink) == ("rows-malformed", given.get("dead_letter", DroppedRows()))
    assert isinstance(good, WhereNode)
    assert good.condition == "`_raw` is null"
    assert isinstance(kept, SelectNode)
    assert kept.expressions == ("`k`", "`a b`")
    assert validate(graph).schema(kept.id) == files("fail").schema


@pytest.mark.parametrize("malformed", ["drop", "fail"])
def test_a_sink_needs_its_policy(malformed: str) -> None:
    with pytest.raises(ValueError, match="dead_letter sink"):
        Dataflow("x").source("rows", files(malformed), dead_letter=MemorySink())


def test_a_sink_must_be_one() -> None:
    not_a_sink: Any = 1
    with pytest.raises(TypeError, match="takes a sink"):
        Dataflow("x").source("rows", files("dead-letter"), dead_letter=not_a_sink)


def test_without_a_sink_of_its_own_a_source_uses_that_of_the_dataflow() -> None:
    flow = Dataflow("x")
    flow.source("rows", files("dead-letter")).sink("out", MemorySink())
    with pytest.raises(InvalidDataflow, match="its dead letters go nowhere"):
        validate(flow.graph())
    flow.dead_letters("letters", MemorySink())
    own = next(node for node in validate(flow.graph()).nodes if node.node.id == 3)
    assert isinstance(own.node, SinkNode)
    assert own.node.name == "rows-malformed"
    assert list(own.row.names) == DEAD_LETTER_SCHEMA.names
