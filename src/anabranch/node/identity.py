"""Whether a directory is this dataflow's, and still fits it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

from anabranch.dataflow.schema import to_ddl
from anabranch.errors import ChangedDataflow, OtherDataflow
from anabranch.node.program import Program
from anabranch.operators.build import StatefulOperator
from anabranch.operators.codec import AnyValue
from anabranch.operators.stateful_map import StatefulMap
from anabranch.plan.step import (
    Commit,
    Identity,
    Input,
    OperatorShape,
    OperatorState,
    decode_identity,
    encode,
)
from anabranch.state.journal import IdentityName, Journal, Taken

_PARTS = {"kind": "kind", "region": "region", "key": "keys", "state schema": "state"}
_KEEP = "Nothing was changed. Run the dataflow that the directory belongs to, or name another "


def identify(journal: Journal, program: Program, directory: Path) -> Identity:
    """The directory's identity: made now if it is new, refused if it is another dataflow's."""
    name = program.typed.graph.name
    entry = journal.find(IdentityName())
    if entry is None:
        made = Identity(secrets.token_hex(16), name, program.bins)
        outcome = journal.create(IdentityName(), encode(made), secrets.token_hex(16))
        if not isinstance(outcome, Taken):
            return made
        entry = outcome.entry
    found = decode_identity(entry.body)
    if found.dataflow != name:
        raise OtherDataflow(
            f"The directory holds the dataflow {found.dataflow!r}, not {name!r}",
            where=str(directory),
            do=_KEEP + "directory.",
        )
    if found.bins != program.bins:
        raise ChangedDataflow(
            f"The directory was made with {found.bins} bins per region, not {program.bins}",
            where=str(directory),
            do=f"Nothing was changed. Run with bins={found.bins}: they are fixed at creation.",
        )
    return found


def shapes(program: Program) -> tuple[OperatorShape, ...]:
    """What the program's state looks like, operator by operator."""
    return tuple(_shape(program, operator) for operator in program.operators.values())


def states_for(
    program: Program, commit: Commit | None, directory: Path
) -> tuple[OperatorState, ...]:
    """The state to go on with: the commit's, and nothing for operators that are new."""
    kept = {} if commit is None else {state.operator: state for state in commit.states}
    found = []
    for shape in shapes(program):
        state = kept.pop(shape.operator, None)
        if state is None:
            found.append(OperatorState(shape, (), (0,) * program.bins))
            continue
        _check_shape(state.shape, shape, directory)
        found.append(state)
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


def _shape(program: Program, operator: StatefulOperator) -> OperatorShape:
    layout = program.layouts[operator.name]
    return OperatorShape(
        operator.name,
        _kind(operator),
        program.region_of(operator.name),
        to_ddl(layout.keys),
        to_ddl(layout.values),
        _packed(operator),
    )


def _packed(operator: StatefulOperator) -> tuple[str, ...]:
    """The state columns that hold any value, as MessagePack."""
    if isinstance(operator, StatefulMap) and isinstance(operator.codec, AnyValue):
        return tuple(operator.codec.schema.names)
    return ()


def _kind(operator: StatefulOperator) -> str:
    """What the operator makes of its state: a maximum is not a count, though both are bigint."""
    if isinstance(operator, StatefulMap):
        return "stateful_map"
    columns = (f"{column.name}={column.function}" for column in operator.columns)
    return f"aggregate({', '.join(columns)})"


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
