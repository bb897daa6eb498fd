"""What operators keep: the states of each, and running any of them over its rows.

All kinds come down to one form: named states, each with a key, perhaps a sub-key, values and
perhaps a time-to-live; and a function from rows and states to rows and changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from anabranch.operators.aggregate import Aggregate
from anabranch.operators.codec import AnyValue, StateCodec
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.process import HandleSpec, ProcessOperator
from anabranch.operators.rows import Changes, KeyedEntries, Rows
from anabranch.operators.stateful_batches import StatefulBatches
from anabranch.operators.stateful_map import StatefulMap
from anabranch.records.layout import Layout, may_be_large

StatefulOperator: TypeAlias = Aggregate | StatefulMap | StatefulBatches | ProcessOperator

_NONE = pa.schema([])


@dataclass(frozen=True, slots=True)
class StateShape:
    """One state of an operator: what must stay the same while it lives.

    ``packed`` are the columns that hold any value, as MessagePack.
    """

    name: str
    kind: str
    values: pa.Schema
    subkeys: pa.Schema = field(default_factory=lambda: _NONE)
    expires: bool = False
    packed: tuple[str, ...] = ()

    def layout(self, keys: pa.Schema) -> Layout:
        """The columns of its runs."""
        return Layout(
            keys, self.values, self.subkeys, self.expires, blobs=may_be_large(self.values)
        )


def state_shapes(operator: StatefulOperator) -> tuple[StateShape, ...]:
    """The states that an operator keeps."""
    name = operator.name
    match operator:
        case Aggregate():
            columns = (f"{column.name}={column.label}" for column in operator.columns)
            kind, expires = f"aggregate({', '.join(columns)})", operator.ttl_ns is not None
            return (StateShape(name, kind, operator.state, expires=expires),)
        case StatefulMap():
            expires = operator.ttl_ns is not None
            codec = operator.codec
            shape = StateShape(
                name, "stateful_map", codec.schema, expires=expires, packed=_packed(codec)
            )
            return (shape,)
        case StatefulBatches():
            expires = operator.ttl_ns is not None
            return (StateShape(name, "stateful_batches", operator.state, expires=expires),)
        case ProcessOperator():
            saved = () if operator.saved is None else (operator.saved,)
            return tuple(_of_handle(handle) for handle in (*operator.handles, *saved))


def run_operator(
    operator: StatefulOperator,
    rows: Rows,
    states: Mapping[str, KeyedEntries],
    dead: list[RowFailure] | None = None,
) -> tuple[Rows, dict[str, Changes]]:
    """Run an operator over its rows; gives its output, and what changed of each state.

    With ``dead`` a function that raises makes no difference to the rest: what it was called with is
    put there.
    """
    match operator:
        case ProcessOperator():
            return operator.run(rows, states, dead)
        case StatefulMap():
            output, changes = operator.run(rows, states[operator.name], dead)
            return output, {operator.name: changes}
        case Aggregate():
            output, changes = operator.run(rows, states[operator.name])
            return output, {operator.name: changes}
        case StatefulBatches():
            output, kept = operator.run(rows, states[operator.name], dead)
            return output, {} if kept is None else {operator.name: kept}


def _of_handle(handle: HandleSpec) -> StateShape:
    return StateShape(
        handle.state,
        f"process {handle.kind.__name__}",
        handle.codec.schema,
        handle.subkey_columns,
        handle.ttl_ns is not None,
        _packed(handle.codec),
    )


def _packed(codec: StateCodec) -> tuple[str, ...]:
    return tuple(codec.schema.names) if isinstance(codec, AnyValue) else ()
