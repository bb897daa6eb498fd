"""A program: what every process of a pipeline knows, and can be told."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from anabranch.records.layout import Layout
from anabranch.sinks.memory import MemorySink
from anabranch.task.program import Program
from tests.node.shop import program, scripted, shop


@pytest.fixture
def made() -> Program:
    return program(shop(scripted(), MemorySink(), MemorySink()))


def test_a_program_says_what_its_operators_keep(made: Program) -> None:
    customer, times = pa.schema([("customer", pa.string())]), pa.schema([("times", pa.int32())])
    assert made.layouts["seen"] == Layout(customer, pa.schema([("state", pa.binary())]), blobs=True)
    assert made.layouts["times"] == Layout(
        times, pa.schema([("n", pa.int64()), ("last", pa.string())]), blobs=True
    )
    assert made.region_of("seen") == "by-customer"
    assert made.region_of("times") == "by-times"
    assert list(made.sinks) == ["rows", "counts"]


def test_a_program_travels_without_what_follows_from_it(made: Program) -> None:
    assert made.physical.levels
    copy = pickle.loads(pickle.dumps(made))
    assert "physical" not in vars(copy)
    assert copy.bins == made.bins
    assert copy.physical == made.physical
    assert copy.layouts == made.layouts
