"""Streams: what the user chains operators on.

Every method records one frozen node and returns the stream after it. Nothing is computed, read or
checked here but Python types (``TypeError`` at once); ``validate`` reports everything else, all of
it together. A stream may be used any number of times: each use is another consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.dataflow.dead_letters import OnError, check_on_error
from anabranch.dataflow.functions import DriverFunction
from anabranch.dataflow.graph import (
    AggregateNode,
    BatchFunction,
    DistributeNode,
    GraphNode,
    KeyByNode,
    LocalNode,
    MapBatchesNode,
    ProcessNode,
    SelectNode,
    SinkNode,
    SplitNode,
    StatefulBatchesNode,
    StatefulBatchFunction,
    StatefulFunction,
    StatefulMapNode,
    TransformNode,
    UnionNode,
    WhereNode,
    WithColumnsNode,
)
from anabranch.dataflow.handles import Process, TimeToLive, ttl_ns
from anabranch.dataflow.order_by import OrderBy, order_columns
from anabranch.dataflow.sql.sql_text import own_name

if TYPE_CHECKING:
    from anabranch.protocol.sinks import Sink


@dataclass(slots=True)
class GraphBuilder:
    """The nodes of one dataflow as they are written down. Only grows."""

    nodes: list[GraphNode] = field(default_factory=list)

    @property
    def next_id(self) -> int:
        """The id of the node that is recorded next."""
        return len(self.nodes)

    def add(self, node: GraphNode) -> int:
        """Record a node made with ``next_id``; gives its id."""
        self.nodes.append(node)
        return node.id


class Stream:
    """Rows on their way through a dataflow, after one of its operators."""

    __slots__ = ("_id", "_recorder")

    def __init__(self, recorder: GraphBuilder, id: int) -> None:
        """For ``Dataflow`` and the methods below; users get streams from ``Dataflow.source``."""
        self._recorder = recorder
        self._id = id

    def __repr__(self) -> str:
        """Which operator it comes from."""
        node = self._recorder.nodes[self._id]
        return f"<Stream after {getattr(node, 'name', None) or node.kind}>"

    def where(self, condition: str) -> Stream:
        """The rows for which a Spark SQL condition is true (not NULL).

        Catalyst plans it, and pushes it into file formats that can skip rows.
        """
        require_text("where", "a condition", condition)
        return self._then(WhereNode(self._recorder.next_id, (self._id,), condition))

    def select(self, *expressions: str) -> Stream:
        """These Spark SQL expressions as the new columns, e.g. ``"id", "amount * 2 as twice"``.

        In a region the key stays beside the row, whether or not it is among the columns.
        """
        for expression in expressions:
            require_text("select", "an expression", expression)
        return self._then(SelectNode(self._recorder.next_id, (self._id,), expressions))

    def with_columns(self, /, **columns: str) -> Stream:
        """The columns as they are and these, e.g. ``twice="amount * 2"``.

        All expressions are over the columns before; a name that exists is replaced in place.
        """
        pairs = named_texts("with_columns", columns)
        return self._then(WithColumnsNode(self._recorder.next_id, (self._id,), pairs))

    def split(self, /, **conditions: str) -> dict[str, Stream]:
        """One stream for each condition, by name: ``big="amount > 100", rest="true"``.

        A row goes to the first output whose condition is true, and nowhere where none is.
        """
        if not conditions:
            raise TypeError('split takes conditions, e.g. big="amount > 100", rest="true"')
        pairs = named_texts("split", conditions)
        texts = tuple(text for _, text in pairs)
        return {
            output: self._then(
                SplitNode(self._recorder.next_id, (self._id,), output, texts[: place + 1])
            )
            for place, (output, _) in enumerate(pairs)
        }

    def union(self, *others: Stream) -> Stream:
        """The rows of this stream and the others, which have the same columns, in any order.

        Each key's rows are in the order of their sources. ``Dataflow.union`` unites streams with
        different columns.
        """
        return union(self._recorder, [self, *others], None)

    def map_batches(
        self, name: str, function: BatchFunction, *, output: str, on_error: OnError = "fail"
    ) -> Stream:
        """The rows that ``function(table)`` gives, called with Arrow tables of any size.

        It returns a table with the columns of ``output``, one row for each that it was given; or
        any rows, each with the ``_ord`` of the row it came from: that column is beside the
        user's, and a row may be dropped or come several times. What it gives for a row must not
        depend on the others in the table: how rows are cut into tables changes with the workers.
        With ``on_error="dead-letter"`` rows for which it raises go to ``Dataflow.dead_letters``.
        """
        require_text("map_batches", "a name", name)
        if not callable(function):
            raise TypeError(f"map_batches takes a function, not {type(function).__name__}")
        require_text("map_batches", "an output schema", output)
        inputs = (self._id,)
        check_on_error("map_batches", on_error)
        return self._then(
            MapBatchesNode(self._recorder.next_id, inputs, name, function, output, on_error)
        )

    def transform(self, name: str, function: Callable[[Any], Any]) -> Stream:
        """The rows of the DataFrame that ``function(df)`` gives, for each step's rows as ``df``.

        It is any Spark code without an action: joins with static tables, ``explode``, windows.
        Columns and types are those of the DataFrame that it returns. Beside the user's columns
        ``df`` has ``_ord``, an opaque value that names each row; return it with the rows to keep
        their order. The rows are in no region afterwards: distribute them anew.
        """
        require_text("transform", "a name", name)
        if not callable(function):
            raise TypeError(f"transform takes a function, not {type(function).__name__}")
        code = DriverFunction.of(function)
        return self._then(TransformNode(self._recorder.next_id, (self._id,), name, code))

    def key_by(self, /, *columns: str, **named: str) -> Stream:
        """The same rows with a key: columns, or named expressions such as ``day="date(at)"``.

        It moves nothing; ``distribute_by_key`` does. The key is computed here, so later operators
        may drop the columns it came from.
        """
        for column in columns:
            require_text("key_by", "a column", column)
        # A nameless expression is kept without a name: validation tells the user to give it one.
        keys = (
            *((own_name(text) or "", text) for text in columns),
            *named_texts("key_by", named),
        )
        return self._then(KeyByNode(self._recorder.next_id, (self._id,), keys))

    def distribute_by_key(self, name: str) -> Stream:
        """The rows at the owners of the keys that ``key_by`` gave them: opens a region.

        The name is the region's: it stands in assignments, metrics and on disk.
        """
        require_text("distribute_by_key", "a name", name)
        return self._then(DistributeNode(self._recorder.next_id, (self._id,), name))

    def key_distribute(self, name: str, /, *columns: str, **named: str) -> Stream:
        """``key_by`` and ``distribute_by_key`` in one: opens a region of this name."""
        require_text("key_distribute", "a name", name)
        return self.key_by(*columns, **named).distribute_by_key(name)

    def local(self) -> Stream:
        """The same rows outside the region: only stateless operators and sinks may follow."""
        return self._then(LocalNode(self._recorder.next_id, (self._id,)))

    def aggregate(
        self,
        name: str,
        /,
        *,
        ttl: TimeToLive = None,
        order_by: OrderBy = None,
        **columns: str,
    ) -> Stream:
        """Aggregates per key, e.g. ``n="count(*)", total="sum(amount)"``.

        For every key that a step changed it gives one row: the key's columns and the new values.
        With ``ttl`` a key is forgotten so long after its last row: the next one begins anew.
        ``order_by`` as in ``stateful_map``, for functions that depend on the order.
        """
        require_text("aggregate", "a name", name)
        pairs = named_texts("aggregate", columns)
        inputs, by = (self._id,), order_columns("aggregate", order_by)
        return self._then(
            AggregateNode(self._recorder.next_id, inputs, name, pairs, ttl_ns(ttl), by)
        )

    def stateful_map(
        self,
        name: str,
        function: StatefulFunction,
        *,
        output: str,
        state: str | None = None,
        ttl: TimeToLive = None,
        on_error: OnError = "fail",
        order_by: OrderBy = None,
    ) -> Stream:
        """The rows that ``function(key, row, state)`` gives, called per row in the key's order.

        Key and row are named tuples; state is None at first sight of a key. It returns
        ``(output, new state)``: an output of None is no row, a list several; a state of None
        forgets the key. ``state`` and ``output`` are schema texts: a state of one column is that
        value, of several a named tuple; ``state=None`` takes any value that msgspec can encode.
        With ``ttl`` a key is forgotten so long after its last row, by the clock of the steps.
        With ``on_error="dead-letter"`` a row for which the function raises, or gives what does not
        fit, leaves the state as it was and goes to ``Dataflow.dead_letters``. With ``order_by``,
        such as ``"at"`` or ``["at desc", "id"]``, a key's rows of a step come in the order of these
        columns, NULL first, and rows that are equal in them as they would have.
        """
        require_text("stateful_map", "a name", name)
        if not callable(function):
            raise TypeError(f"stateful_map takes a function, not {type(function).__name__}")
        require_text("stateful_map", "an output schema", output)
        if state is not None:
            require_text("stateful_map", "a state schema or None", state)
        check_on_error("stateful_map", on_error)
        inputs, lives, by = (self._id,), ttl_ns(ttl), order_columns("stateful_map", order_by)
        return self._then(
            StatefulMapNode(
                self._recorder.next_id, inputs, name, function, state, output, lives, on_error, by
            )
        )

    def stateful_batches(
        self,
        name: str,
        function: StatefulBatchFunction,
        *,
        state: str,
        output: str,
        ttl: TimeToLive = None,
        on_error: OnError = "fail",
        order_by: OrderBy = None,
    ) -> Stream:
        """The rows that ``function(rows, state)`` gives, called once per worker and step.

        Both are Arrow tables: the step's rows, each key's together and in order, and one row of
        state per key (its key columns and its state columns, NULL at first sight). The column
        ``_key`` of the rows is the place of their key in ``state``; ``_ord`` is their own place. It
        returns ``(output, new state)``. Output has one row for each, or the ``_ord`` of the row
        or the ``_key`` of the key that each belongs to. State has one row for each key, or the
        ``_key`` beside each that changes; where its column ``_forget`` is true the key is
        forgotten. None is no output, or no change. With ``on_error="dead-letter"`` the rows of the
        keys that it cannot take leave their state as it was and go to ``Dataflow.dead_letters``.
        ``order_by`` as in ``stateful_map``.
        """
        require_text("stateful_batches", "a name", name)
        if not callable(function):
            raise TypeError(f"stateful_batches takes a function, not {type(function).__name__}")
        require_text("stateful_batches", "a state schema", state)
        require_text("stateful_batches", "an output schema", output)
        check_on_error("stateful_batches", on_error)
        inputs, lives, by = (self._id,), ttl_ns(ttl), order_columns("stateful_batches", order_by)
        return self._then(
            StatefulBatchesNode(
                self._recorder.next_id, inputs, name, function, state, output, lives, on_error, by
            )
        )

    def process(
        self,
        name: str,
        process: type[Process],
        *,
        output: str,
        on_error: OnError = "fail",
        order_by: OrderBy = None,
    ) -> Stream:
        """The rows that the methods of a class give, called per key with the rows of a step.

        The class derives from ``Process`` and says by its attributes which state it keeps. With
        ``on_error="dead-letter"`` the rows of a call that raises leave the key's state as it was
        and go to ``Dataflow.dead_letters``. ``order_by`` as in ``stateful_map``.
        """
        require_text("process", "a name", name)
        if not (isinstance(process, type) and issubclass(process, Process)):
            raise TypeError(f"process takes a class derived from Process, not {process!r}")
        require_text("process", "an output schema", output)
        check_on_error("process", on_error)
        inputs, by = (self._id,), order_columns("process", order_by)
        return self._then(
            ProcessNode(self._recorder.next_id, inputs, name, process, output, on_error, by)
        )

    def sink(self, name: str, sink: Sink) -> None:
        """Write the rows to a sink. A stream may have several."""
        require_text("sink", "a name", name)
        require_sink("sink", sink)
        self._recorder.add(SinkNode(self._recorder.next_id, (self._id,), name, sink))

    def _then(self, node: GraphNode) -> Stream:
        return Stream(self._recorder, self._recorder.add(node))


def union(
    recorder: GraphBuilder, streams: Sequence[Stream], tag: tuple[str, tuple[str, ...]] | None
) -> Stream:
    """Record a union; refuses streams of another dataflow."""
    for stream in streams:
        if not isinstance(stream, Stream):
            raise TypeError(f"union takes streams, not {type(stream).__name__}")
        if stream._recorder is not recorder:
            raise ValueError(f"union takes streams of one dataflow: {stream} is of another")
    node = UnionNode(recorder.next_id, tuple(stream._id for stream in streams), tag)
    return Stream(recorder, recorder.add(node))


def require_sink(operator: str, sink: object) -> None:
    """Refuse anything but a sink."""
    if not all(callable(getattr(sink, verb, None)) for verb in ("encode", "open", "refuses")):
        raise TypeError(f"{operator} takes a sink such as FileSink(…), not {type(sink).__name__}")


def require_text(operator: str, wanted: str, value: object) -> None:
    """Refuse anything but a ``str``, naming the operator and what it wanted."""
    if not isinstance(value, str):
        raise TypeError(f"{operator} takes {wanted} as text (str), not {type(value).__name__}")


def named_texts(operator: str, columns: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The keyword arguments as pairs, in order; refuses values that are not ``str``."""
    for name, text in columns.items():
        require_text(operator, f"{name}=…", text)
    return tuple(columns.items())
