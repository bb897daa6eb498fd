"""Whether a dataflow still fits what is in its directory: state, positions, staged output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from anabranch.dataflow.types.schema import to_ddl
from anabranch.errors import ChangedDataflow
from anabranch.protocol.node import Output
from anabranch.records.placed import OperatorShape, OperatorState
from anabranch.records.plan import Input
from anabranch.records.staged_file import StagedFile
from anabranch.task.program import Program

_PARTS = {
    "kind": "kind",
    "region": "region",
    "key": "keys",
    "state schema": "state",
    "sub-key": "subkeys",
    "time-to-live": "expires",
}
_KEEP = "Nothing was changed. Run the dataflow that the directory belongs to, or name another "


def shapes(program: Program) -> tuple[OperatorShape, ...]:
    """What the program's state looks like, operator by operator."""
    return tuple(_shape(program, state) for state in program.states)


def fitting(
    program: Program, states: Iterable[OperatorState], directory: Path
) -> tuple[OperatorState, ...]:
    """The program's states: those that are there, and nothing for operators that are new."""
    kept = {state.operator: state for state in states}
    found = []
    for shape in shapes(program):
        state = kept.pop(shape.operator, None)
        if state is not None:
            _check_shape(state.shape, shape, directory)
        found.append(state or OperatorState(shape, (), (0,) * program.bins))
    for operator, state in kept.items():
        if any(state.live):
            raise ChangedDataflow(
                f"Operator {operator!r} is gone from the dataflow, but the directory holds its "
                f"state ({sum(state.live)} keys)",
                where=str(directory),
                do=_KEEP + "directory; or put the operator back.",
            )
    return tuple(found)


def check_sources(program: Program, read: Iterable[Input], directory: Path) -> None:
    """Refuse a program without a source that was read or is to be read."""
    names = {node.name for node in program.physical.sources()}
    for given in read:
        if given.source not in names:
            raise ChangedDataflow(
                f"Source {given.source!r} is gone from the dataflow, but the directory holds its "
                "position",
                where=str(directory),
                do=_KEEP + "directory; or put the source back.",
            )


def check_outputs(
    program: Program, outputs: Iterable[Output], published: Mapping[str, int], directory: Path
) -> None:
    """Refuse a program that cannot publish what is committed: a sink is gone or reads other files.

    How far a sink got is what the journal says, as it was then: that it has gone on since only
    the sink itself could tell, and it is gone.
    """
    left: dict[str, int] = {}
    for each in outputs:
        staged = {file.sink: file for file in each.staged}
        for sink in staged.keys() & published.keys():
            if each.step <= published[sink]:
                continue
            if sink in program.sinks:
                _check_staged(staged[sink], program.sinks[sink].sink.stage_format, directory)
            else:
                left[sink] = left.get(sink, 0) + 1
    for sink, steps in sorted(left.items()):
        are = "1 step of its output is" if steps == 1 else f"{steps} steps of its output are"
        raise ChangedDataflow(
            f"Sink {sink!r} is gone from the dataflow, but {are} not known to be published",
            where=str(directory),
            do="Nothing was changed. Put the sink back and run until the pipeline completes "
            "or is shut down; then it can be left out.",
        )


def _check_staged(file: StagedFile, wanted: str, directory: Path) -> None:
    staged = file.name.rpartition(".")[2]
    if staged != wanted:
        raise ChangedDataflow(
            f"Sink {file.sink!r} has output that is staged as {staged} and not known to be "
            f"published, but the sink takes {wanted} now",
            where=str(directory),
            do="Nothing was changed. Run with the sink as it was until the pipeline completes or "
            "is shut down; then it can be changed.",
        )


def _shape(program: Program, state: str) -> OperatorShape:
    shape, _ = program.states[state]
    layout = program.layouts[state]
    return OperatorShape(
        state,
        shape.kind,
        program.region_of(state),
        to_ddl(layout.keys),
        to_ddl(layout.values),
        to_ddl(layout.subkeys),
        layout.expires,
        shape.packed,
        layout.dues,
    )


def _check_shape(kept: OperatorShape, wanted: OperatorShape, directory: Path) -> None:
    for what, name in _PARTS.items():
        before, now = getattr(kept, name), getattr(wanted, name)
        if before != now:
            raise ChangedDataflow(
                f"Operator {wanted.operator!r} has another {what} than its state in the "
                f"directory: {now!r} instead of {before!r}",
                where=str(directory),
                do="Nothing was changed. Give the changed operator a new name, which starts with "
                "empty state, or use another directory.",
            )
