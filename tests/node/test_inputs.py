"""The open sources of a pipeline: who is told what is committed, and who lets go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.dataflow.validate import validate
from anabranch.node.inputs import Inputs
from anabranch.plan.lower import lower
from anabranch.plan.physical import Physical
from anabranch.plan.step import Input
from anabranch.sources.memory_log import MemoryLog
from anabranch.sources.port import NO_LIMIT, Batch, Enumerator, Limit, Slice, SourceLog


@dataclass
class Attentive:
    """An open source that writes down what it is told."""

    told: list[str] = field(default_factory=list)
    fails: bool = False

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        return Batch((), b"{}", 0, True)

    def files(self) -> frozenset[str]:
        return frozenset()

    def acknowledge(self, position: bytes) -> None:
        self.told.append(position.decode())

    def close(self) -> None:
        self.told.append("closed")
        if self.fails:
            raise RuntimeError("it does not let go")


@dataclass(frozen=True)
class Described:
    """A source that someone else opens."""

    schema: pa.Schema = field(default_factory=lambda: pa.schema([("k", pa.string())]))

    def open(self, position: bytes | None, log: SourceLog) -> Enumerator:
        raise AssertionError("opened by itself")

    def check(self, slices: Sequence[Slice]) -> None: ...

    def log_files(self, position: bytes) -> frozenset[str]:
        return frozenset()


def physical(*names: str) -> Physical:
    flow = ab.Dataflow("inputs")
    for name in names:
        flow.source(name, Described()).sink(f"{name}-out", ab.MemorySink())
    flow.source("script", ab.ScriptedSource("k string", [[("a",)]])).sink("s", ab.MemorySink())
    return lower(validate(flow.graph()))


def opened(sources: dict[str, Attentive], *, refuse: str = "") -> Inputs:
    def open_source(name: str, source: Any, position: bytes | None, log: SourceLog) -> Enumerator:
        if name == refuse:
            raise LookupError(name)
        return sources[name] if name in sources else source.open(position, log)

    return Inputs(physical(*sources), MemoryLog(), (), open_source)


def at(name: str, position: str) -> Input:
    return Input(name, (), msgspec.Raw(position.encode()))


def test_only_those_that_want_to_are_told_each_its_own_position() -> None:
    sources = {"a": Attentive(), "b": Attentive()}
    inputs = opened(sources)
    inputs.acknowledge([at("a", "1"), at("script", "{}"), at("gone", "3")])
    inputs.acknowledge([at("b", "2"), at("a", "4")])
    assert {name: source.told for name, source in sources.items()} == {
        "a": ["1", "4"],
        "b": ["2"],
    }


def test_all_let_go_though_one_fails() -> None:
    sources = {"a": Attentive(fails=True), "b": Attentive(), "c": Attentive(fails=True)}
    with pytest.raises(RuntimeError, match="does not let go"):
        opened(sources).close()
    assert [source.told for source in sources.values()] == [["closed"]] * 3


def test_those_that_are_open_let_go_when_another_cannot_be_opened() -> None:
    sources = {"a": Attentive(), "b": Attentive()}
    with pytest.raises(LookupError):
        opened(sources, refuse="script")
    assert [source.told for source in sources.values()] == [["closed"]] * 2
