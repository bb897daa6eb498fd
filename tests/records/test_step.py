"""Plans, commits and messages survive the way through the journal and through a row."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import messages
from anabranch.coordinator.parts.sources import positions_of
from anabranch.messages import Attempt, Barrier, Control, Load, Report, StateReport, Tally
from anabranch.records.bins import BinSet
from anabranch.records.commit import Commit, RowCount, decode_commit
from anabranch.records.leader import Identity, decode_identity
from anabranch.records.placed import Assignment, OperatorShape, OperatorState
from anabranch.records.plan import Input, Plan, decode_plan
from anabranch.records.run_list import Listed, RunInfo
from anabranch.records.slices import FileSlice, RangeSlice
from anabranch.records.staged_file import StagedFile
from tests.coordinator.parts_kit import parts_with

names = st.text("abcé-. /", max_size=6)
counts = st.integers(0, 2**53)
words = st.integers(0, 2**64 - 1)
tuples = st.lists(st.integers(0, 9), max_size=4).map(tuple)

bins = st.lists(st.integers(0, 255), max_size=4).map(BinSet.of)
run_infos = st.builds(RunInfo, names, names, counts, counts, st.just("0badcafe"))
run_lists = st.lists(st.builds(Listed, run_infos, bins), max_size=2).map(tuple)
slices = st.one_of(
    st.builds(FileSlice, names, counts, st.integers(0, 2**62)),
    st.builds(RangeSlice, counts, counts, counts),
)
positions = st.dictionaries(names, counts, max_size=2).map(
    lambda some: msgspec.Raw(msgspec.json.encode(some))
)
inputs = st.builds(Input, names, st.lists(slices, max_size=2).map(tuple), positions)
assignments = st.builds(Assignment, names, counts, tuples)
staged = st.builds(
    StagedFile, name=names, sink=names, rows=counts, bytes=counts, checksum=st.just("00000000")
)
plans = st.builds(
    Plan,
    counts,
    counts,
    st.integers(0, 2**62),
    names,
    st.lists(inputs, max_size=2).map(tuple),
    st.lists(assignments, max_size=2).map(tuple),
    counts,
)
shapes = st.builds(OperatorShape, names, names, names, names, names)
states = st.builds(OperatorState, shapes, run_lists, tuples)
commits = st.builds(
    Commit,
    counts,
    counts,
    st.integers(0, 2**62),
    names,
    st.lists(assignments, max_size=2).map(tuple),
    st.lists(states, max_size=2).map(tuple),
    st.lists(staged, max_size=2).map(tuple),
    st.lists(st.builds(RowCount, names, counts, tuples, tuples, st.just(("ff",))), max_size=2).map(
        tuple
    ),
    st.dictionaries(names, counts, max_size=2),
    parts=st.lists(inputs, max_size=2).map(tuple).map(parts_with),
)

small = settings(max_examples=40, deadline=None)


@small
@given(plans)
def test_a_plan_comes_back_as_it_was(plan: Plan) -> None:
    assert decode_plan(msgspec.json.encode(plan)) == plan


@small
@given(commits)
def test_a_commit_comes_back_as_it_was(commit: Commit) -> None:
    back = decode_commit(msgspec.json.encode(commit))
    assert back == commit
    assert [state.operator for state in back.states] == [s.shape.operator for s in commit.states]
    # Positions are handed to sources as the bytes that they gave.
    assert [bytes(p.position) for p in positions_of(back)] == [
        bytes(p.position) for p in positions_of(commit)
    ]


def test_an_identity_comes_back_as_it_was() -> None:
    identity = Identity("f" * 32, "shop", 256)
    assert decode_identity(msgspec.json.encode(identity)) == identity


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"step": "one"}', b""])
def test_a_body_of_another_kind_is_not_taken_for_one_of_ours(body: bytes) -> None:
    for decode in (decode_plan, decode_commit, decode_identity):
        with pytest.raises(msgspec.DecodeError):
            decode(body)


attempts = st.builds(Attempt, counts, names, counts, names)
notes = st.one_of(
    attempts,
    st.builds(
        Control,
        counts,
        counts,
        names,
        counts,
        bins,
        st.lists(
            st.builds(Load, names, run_lists, tuples) | st.builds(Barrier, counts), max_size=2
        ).map(tuple),
    ),
    st.builds(
        Report,
        attempts,
        st.lists(attempts, max_size=2).map(tuple),
        st.lists(st.builds(StateReport, names, bins, run_lists, tuples, counts), max_size=2).map(
            tuple
        ),
        st.lists(staged, max_size=2).map(tuple),
        st.lists(
            st.builds(Tally, names, tuples, tuples, st.lists(words, max_size=2).map(tuple)),
            max_size=2,
        ).map(tuple),
        st.dictionaries(names, st.floats(0, 1e6)),
    ),
)


@small
@given(notes)
def test_a_note_comes_back_as_it_was(note: messages.Note) -> None:
    back = messages.decode(messages.encode(note))
    assert back == note
    assert type(back) is type(note)


def test_a_source_has_the_partitions_that_are_assigned_or_read() -> None:
    readers = Assignment("rows", 1, (0, 1, 0), source=True)

    def plan(*slices: RangeSlice) -> Plan:
        return Plan(1, 0, 0, "code", (Input("rows", slices, msgspec.Raw(b"1")),), (readers,), 1)

    assert plan().partitions("rows") == 3
    assert plan(RangeSlice(0, 0, 1)).partitions("rows") == 3
    assert plan(RangeSlice(4, 0, 1)).partitions("rows") == 5
    assert plan(RangeSlice(4, 0, 1)).partitions("others") == 1
