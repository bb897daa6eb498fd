"""Streams, on which the user chains operators.

Every method records one frozen node and returns the stream after it. Only Python types are checked
here, with a ``TypeError`` at once; ``validate`` reports all other problems together. A stream may
be used any number of times: each use adds a consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, get_args

from anabranch.dataflow import graph as nodes
from anabranch.dataflow.dead_letters import OnError
from anabranch.dataflow.durations import (
    Clock,
    Duration,
    TimeToLive,
    clock_error,
    duration_us,
    ttl_ns,
)
from anabranch.dataflow.functions import DriverFunction
from anabranch.dataflow.graph import GraphNode
from anabranch.dataflow.handles import Process
from anabranch.dataflow.joins import JoinKind, LeftJoinKind, join_bounds
from anabranch.dataflow.order_by import By, OrderBy, OrderColumn, by_columns, order_columns
from anabranch.dataflow.sql.sql_text import own_name
from anabranch.dataflow.timestamps import ARRIVAL, Arrival
from anabranch.dataflow.windows import Window
from anabranch.protocol.sinks import DeadLetterRows

if TYPE_CHECKING:
    from anabranch.dataflow.windowed_stream import WindowedStream
    from anabranch.protocol.sinks import Sink

P = ParamSpec("P")


@dataclass(slots=True)
class GraphBuilder:
    """The nodes of one dataflow under construction. It only grows."""

    nodes: list[GraphNode] = field(default_factory=list)
    #: the stream of late rows of each operator that was asked for one
    late: dict[int, int] = field(default_factory=dict)

    def add(
        self,
        kind: Callable[Concatenate[int, tuple[int, ...], P], GraphNode],
        inputs: tuple[int, ...],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> int:
        """Record a node of this kind and return its id."""
        self.nodes.append(kind(len(self.nodes), inputs, *args, **kwargs))
        return len(self.nodes) - 1

    def untimed_name(self, id: int) -> str:
        """The name of the sink for rows of a stream without times: the nearest one before it."""
        node = self.nodes[id]
        while node.inputs and not isinstance(node, nodes.NamedNode):
            node = self.nodes[node.inputs[0]]
        name = f"{getattr(node, 'name', '')}-untimed"
        taken = sum(isinstance(node, nodes.UntimedNode) for node in self.nodes)
        return name if taken == 1 else f"{name}-{taken}"


class Stream:
    """The rows that come out of an operator of a dataflow."""

    __slots__ = ("_id", "_recorder")

    def __init__(self, recorder: GraphBuilder, id: int) -> None:
        """Wrap a recorded node. Users get streams from ``Dataflow.source``."""
        self._recorder = recorder
        self._id = id

    def __repr__(self) -> str:
        node = self._recorder.nodes[self._id]
        return f"<Stream after {getattr(node, 'name', None) or node.kind}>"

    def where(self, condition: str) -> Stream:
        """Keep the rows for which a Spark SQL condition is true (not NULL).

        Catalyst plans it, and pushes it down into file formats that can skip rows.
        """
        require_text("where", "a condition", condition)
        return self._then(nodes.WhereNode, condition)

    def select(self, *expressions: str) -> Stream:
        """Replace the columns by Spark SQL expressions, e.g. ``"id", "amount * 2 as twice"``.

        In a region the key stays beside the row, even if it is not among the columns.
        """
        for expression in expressions:
            require_text("select", "an expression", expression)
        return self._then(nodes.SelectNode, expressions)

    def with_columns(self, /, **columns: str) -> Stream:
        """Add or replace columns, e.g. ``twice="amount * 2"``.

        All expressions see the columns as they were. A replaced column keeps its place.
        """
        return self._then(nodes.WithColumnsNode, named_texts("with_columns", columns))

    def split(self, /, **conditions: str) -> dict[str, Stream]:
        """Split into one stream per condition, by name: ``big="amount > 100", rest="true"``.

        A row goes to the first output whose condition is true; it is dropped if none is.
        """
        if not conditions:
            raise TypeError('split takes conditions, e.g. big="amount > 100", rest="true"')
        pairs = named_texts("split", conditions)
        texts = tuple(text for _, text in pairs)
        return {
            output: self._then(nodes.SplitNode, output, texts[: place + 1])
            for place, (output, _) in enumerate(pairs)
        }

    def union(self, *others: Stream) -> Stream:
        """Merge this stream with others that have the same columns, in any column order.

        Each key's rows are ordered by source. ``Dataflow.union`` merges any columns.
        """
        return union(self._recorder, [self, *others], None)

    def map_batches(
        self, name: str, function: nodes.BatchFunction, *, output: str, on_error: OnError = "fail"
    ) -> Stream:
        """Call ``function(table)`` with Arrow tables of any size; its results are the rows.

        It returns a table with the columns of ``output``: one row per input row, or any rows, each
        with the ``_ord`` of its input row. The column ``_ord`` comes beside the user's columns;
        with it, rows may be dropped or multiplied. The result for a row must not depend on the
        other rows of the table: how rows are cut into tables changes with the workers. With
        ``on_error="dead-letter"``, rows for which it raises go to ``Dataflow.dead_letters``.
        """
        require_operator("map_batches", name, function, output, on_error)
        return self._then(nodes.MapBatchesNode, name, function, output, on_error)

    def transform(self, name: str, function: Callable[[Any], Any]) -> Stream:
        """Call ``function(df)`` with each step's rows; the DataFrame it returns is the result.

        It may be any Spark code without an action: joins with static tables, ``explode``, windows.
        The result has the columns and types of the returned DataFrame. Beside the user's columns
        ``df`` has ``_ord``, an opaque value that names each row; return it with the rows to keep
        their order. The result is outside any region: distribute it again if needed.
        """
        require_text("transform", "a name", name)
        require_function("transform", function)
        return self._then(nodes.TransformNode, name, DriverFunction.of(function))

    def assign_timestamps(
        self,
        column: str | Arrival,
        *,
        lateness: Duration = "0 seconds",
        idle: Duration | None = None,
        ahead: Duration | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Give rows their event times: those in a timestamp column, or ``ab.ARRIVAL``.

        It stands between a source and the first distribution. Every row that gets here counts as
        progress of time, also if a later operator drops it. ``lateness`` is how far a row may be
        behind the latest one of its partition. A partition without rows holds everybody back,
        unless it was silent for ``idle``. A row that is further than ``ahead`` before the clock of
        its step is late everywhere and moves nothing. A row without a time fails the step, or with
        ``on_error="dead-letter"`` goes to ``Dataflow.dead_letters``.
        """
        if column is not ARRIVAL:
            require_text("assign_timestamps", "a column, or ARRIVAL,", column)
        require_on_error("assign_timestamps", on_error)
        if column is not ARRIVAL and on_error == "dead-letter":
            letters = self._recorder.add(nodes.UntimedNode, (self._id,), column)
            name, sink = self._recorder.untimed_name(self._id), DeadLetterRows()
            self._recorder.add(nodes.SinkNode, (letters,), name, sink, letters=True)
        return self._then(
            nodes.TimestampsNode,
            None if column is ARRIVAL else column,
            duration_us("lateness", lateness, least=0),
            None if idle is None else duration_us("idle", idle),
            None if ahead is None else duration_us("ahead", ahead, least=0),
            on_error,
        )

    def key_by(self, /, *columns: str, **named: str) -> Stream:
        """Give rows a key: columns, or named expressions such as ``day="date(at)"``.

        The key is computed here, so later operators may drop its columns. Rows do not move until
        ``distribute_by_key``.
        """
        for column in columns:
            require_text("key_by", "a column", column)
        # Validation reports an expression without a name.
        keys = (*((own_name(text) or "", text) for text in columns), *named_texts("key_by", named))
        return self._then(nodes.KeyByNode, keys)

    def distribute_by_key(self, name: str) -> Stream:
        """Send rows to the owners of their keys from ``key_by``. This opens a region.

        The name is the region's: assignments, metrics and files use it.
        """
        require_text("distribute_by_key", "a name", name)
        return self._then(nodes.DistributeNode, name)

    def key_distribute(self, name: str, /, *columns: str, **named: str) -> Stream:
        """``key_by`` and ``distribute_by_key`` in one. This opens a region of this name."""
        require_text("key_distribute", "a name", name)
        return self.key_by(*columns, **named).distribute_by_key(name)

    def local(self) -> Stream:
        """Leave the region: only stateless operators and sinks may follow."""
        return self._then(nodes.LocalNode)

    def window(self, window: Window) -> WindowedStream:
        """Group the rows of each key by windows of event time: ``.window(ab.tumbling("1 hour"))``.

        Follow it with ``aggregate``, ``top`` or ``apply``. The rows need times from
        ``assign_timestamps``.
        """
        from anabranch.dataflow.windowed_stream import WindowedStream  # noqa: PLC0415  (a cycle)

        return WindowedStream(self._recorder, self._id, window)

    def aggregate(
        self,
        name: str,
        /,
        *,
        ttl: TimeToLive = None,
        clock: str = "step",
        order_by: OrderBy = None,
        **columns: str,
    ) -> Stream:
        """Maintain aggregates per key, e.g. ``n="count(*)", total="sum(amount)"``.

        For every key that a step changed it emits one row: the key's columns and the new values.
        With ``ttl``, a key is forgotten that long after its last row, by the clock of the steps or,
        with ``clock="event"``, by event time. ``order_by`` works as in ``stateful_map``, for
        functions that depend on the order.
        """
        require_text("aggregate", "a name", name)
        pairs = named_texts("aggregate", columns)
        lives, by = require_ttl("aggregate", ttl, clock), order_columns("aggregate", order_by)
        known: Clock = "event" if clock == "event" else "step"
        return self._then(nodes.AggregateNode, name, pairs, lives, by, clock=known)

    def top(
        self, name: str, count: int, *, by: By, ties: bool = False, ttl: TimeToLive = None
    ) -> Stream:
        """Keep the first ``count`` rows of each key, e.g. ``by="price desc, id"``.

        For every key whose first rows a step changed it emits all of them, in order: their columns
        and a column ``rank``. NULL comes last, and of equal rows the first to come is the first.
        With ``ties``, all rows that equal the last one are among them, and equal rows have one
        rank. With ``ttl``, a key is forgotten that long after its last row.
        """
        columns = top_columns(name, count, by)
        return self._then(nodes.TopNode, name, count, columns, bool(ties), ttl_ns(ttl))

    def stateful_map(
        self,
        name: str,
        function: nodes.StatefulFunction,
        *,
        output: str,
        state: str | None = None,
        ttl: TimeToLive = None,
        clock: Clock = "step",
        time: str | None = None,
        on_error: OnError = "fail",
        order_by: OrderBy = None,
    ) -> Stream:
        """Call ``function(key, row, state)`` for each row, in the order of the key's rows.

        Key and row are named tuples; state is None for a new key. The function returns ``(output,
        new state)``. An output of None is no row, a list is several rows; a state of None forgets
        the key. ``state`` and ``output`` are schema texts. A state with one column is a plain
        value, with several a named tuple; ``state=None`` allows any value that msgspec can encode.
        With ``ttl``, a key is forgotten that long after its last row, by the clock of the steps or,
        with ``clock="event"``, by event time. Output has the event time of its row, or that of its
        column ``time``. With ``on_error="dead-letter"``, a row for which the function raises or
        returns something that does not fit leaves the state unchanged and goes to
        ``Dataflow.dead_letters``. With ``order_by``, such as ``"at"`` or ``["at desc", "id"]``, a
        key's rows of a step are sorted by these columns, NULL first; ties keep their order.
        """
        require_operator("stateful_map", name, function, output, on_error)
        if state is not None:
            require_text("stateful_map", "a state schema or None", state)
        lives, by = require_ttl("stateful_map", ttl, clock), order_columns("stateful_map", order_by)
        require_time("stateful_map", time)
        return self._then(
            nodes.StatefulMapNode,
            *(name, function, state, output, lives, on_error, by),
            clock=clock,
            time=time,
        )

    def stateful_batches(
        self,
        name: str,
        function: nodes.StatefulBatchFunction,
        *,
        state: str,
        output: str,
        ttl: TimeToLive = None,
        clock: Clock = "step",
        time: str | None = None,
        on_error: OnError = "fail",
        order_by: OrderBy = None,
    ) -> Stream:
        """Call ``function(rows, state)`` once per worker and step.

        Both are Arrow tables: the step's rows, grouped by key and in order, and one row of state
        per key (its key columns and its state columns, which are NULL for a new key). In ``rows``,
        ``_key`` is the place of the row's key in ``state``, and ``_ord`` the row's own place. The
        function returns ``(output, new state)``. Output has one row per input row, or names the
        input row (``_ord``) or key (``_key``) of each. New state has one row per key, or names the
        ``_key`` of each row that changed; a key is forgotten if its column ``_forget`` is true.
        None means no output, or no change. With ``on_error="dead-letter"``, the rows of keys that
        it cannot process leave their state unchanged and go to ``Dataflow.dead_letters``.
        ``clock``, ``time`` and ``order_by`` work as in ``stateful_map``; output that names a key
        has the latest event time of its rows.
        """
        require_operator("stateful_batches", name, function, output, on_error)
        require_text("stateful_batches", "a state schema", state)
        lives = require_ttl("stateful_batches", ttl, clock)
        by = order_columns("stateful_batches", order_by)
        require_time("stateful_batches", time)
        return self._then(
            nodes.StatefulBatchesNode,
            *(name, function, state, output, lives, on_error, by),
            clock=clock,
            time=time,
        )

    def process(
        self,
        name: str,
        process: type[Process],
        *,
        output: str,
        time: str | None = None,
        on_error: OnError = "fail",
        order_by: OrderBy = None,
    ) -> Stream:
        """Call the methods of a class with each key's rows of a step.

        The class derives from ``Process`` and declares its state as attributes; with ``on_notify``
        it can set timers. Output has the latest event time of the call's rows, that of the timer,
        or that of its column ``time``. With ``on_error="dead-letter"``, the rows of a call that
        raises leave the key's state unchanged and go to ``Dataflow.dead_letters``. ``order_by``
        works as in ``stateful_map``.
        """
        if not (isinstance(process, type) and issubclass(process, Process)):
            raise TypeError(f"process takes a class derived from Process, not {process!r}")
        require_operator("process", name, process, output, on_error)
        by = order_columns("process", order_by)
        require_time("process", time)
        return self._then(nodes.ProcessNode, name, process, output, on_error, by, time)

    def join(
        self,
        name: str,
        other: Stream,
        *,
        region: str,
        within: tuple[Duration, Duration] | None = None,
        window: Window | None = None,
        ttl: Duration | None = None,
        how: JoinKind = "inner",
    ) -> Stream:
        """Join rows with those of another stream that have the same key, in a region of this name.

        Both need ``key_by`` and event times. Say with one of three which rows meet: ``within=("-1
        minute", "1 hour")``, those of the other stream that are up to a minute before or an hour
        after; ``window=ab.tumbling("1 day")``, those in one window, once it closes; ``ttl="1
        day"``, those no further apart. ``how`` is "inner", "left", "right" or "full": then rows
        also come out alone, as soon as no partner can come. A row has this stream's columns with
        the key, the other's without its key, and those of the window.
        """
        require_text("join", "a name", name)
        require_join("join", how, *get_args(JoinKind))
        if window is not None and not isinstance(window, get_args(Window)):
            raise TypeError(f"join takes a window such as ab.tumbling(…), not {window!r}")
        bounds = None if within is None else join_bounds(within)
        lives = None if ttl is None else duration_us("ttl", ttl)
        both = self._sides("join", other, region)
        return both._then(nodes.JoinNode, name, how, bounds, window, lives)

    def join_as_of(
        self,
        name: str,
        other: Stream,
        *,
        region: str,
        tolerance: Duration | None = None,
        how: LeftJoinKind = "inner",
    ) -> Stream:
        """Join each row with the last one of another stream, of the same key, up to its time.

        Both need ``key_by`` and event times. A row comes out when time has passed it. With
        ``tolerance``, a partner is not further back than that. With ``how="left"``, rows without a
        partner come out too. Columns are those of ``join``.
        """
        require_text("join_as_of", "a name", name)
        require_join("join_as_of", how, *get_args(LeftJoinKind))
        back = None if tolerance is None else duration_us("tolerance", tolerance, least=0)
        both = self._sides("join_as_of", other, region)
        return both._then(nodes.AsOfJoinNode, name, how, back)

    def join_latest(
        self, name: str, other: Stream, *, region: str, how: LeftJoinKind = "inner"
    ) -> Stream:
        """Join each row at once with the newest one of another stream, of the same key, so far.

        Both need ``key_by``. The newest is the one with the latest event time; without event times,
        it is the last one that came. With ``how="left"``, rows without a partner come out too.
        Columns are those of ``join``.
        """
        require_text("join_latest", "a name", name)
        require_join("join_latest", how, *get_args(LeftJoinKind))
        return self._sides("join_latest", other, region)._then(nodes.LatestJoinNode, name, how)

    def dedup(self, name: str, *, within: Duration) -> Stream:
        """Keep the first row of each key; drop others whose event time is no further from it.

        After ``within``, a row of the key is a first one again.
        """
        require_text("dedup", "a name", name)
        return self._then(nodes.DedupNode, name, duration_us("within", within))

    @property
    def late(self) -> Stream:
        """The rows that came too late for this operator, as they came, and a column ``frontier``.

        The frontier is the one that they were late for. The rows have no event time any more.
        """
        known = self._recorder.late
        if self._id not in known:
            known[self._id] = self._recorder.add(nodes.LateNode, (self._id,))
        return Stream(self._recorder, known[self._id])

    def sink(self, name: str, sink: Sink) -> None:
        """Write the rows to a sink. A stream may have several."""
        require_text("sink", "a name", name)
        require_sink("sink", sink)
        self._recorder.add(nodes.SinkNode, (self._id,), name, sink)

    def _sides(self, operator: str, other: Stream, region: str) -> Stream:
        """Both sides of a join as one stream, distributed by their key."""
        require_text(operator, "the name of a region", region)
        return union(self._recorder, [self, other], None, operator).distribute_by_key(region)

    def _then(
        self,
        kind: Callable[Concatenate[int, tuple[int, ...], P], GraphNode],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Stream:
        return Stream(self._recorder, self._recorder.add(kind, (self._id,), *args, **kwargs))


def union(
    recorder: GraphBuilder,
    streams: Sequence[Stream],
    tag: tuple[str, tuple[str, ...]] | None,
    join: str | None = None,
) -> Stream:
    """Record a union, or one of the sides of a join; ``ValueError`` if a stream is of another flow.

    ``join`` is the method that joins them, None for none.
    """
    for stream in streams:
        if not isinstance(stream, Stream):
            raise TypeError(f"{join or 'union'} takes streams, not {type(stream).__name__}")
        if stream._recorder is not recorder:
            what = f"{join or 'union'} takes streams of one dataflow: {stream} is from another"
            raise ValueError(what)
    ids = tuple(each._id for each in streams)
    return Stream(recorder, recorder.add(nodes.UnionNode, ids, tag, join is not None))


def require_join(operator: str, how: object, *kinds: str) -> None:
    """Raise ``ValueError`` unless a join has one of these kinds."""
    if how not in kinds:
        known = ", ".join(f'"{kind}"' for kind in kinds)
        raise ValueError(f"{operator}: how is one of {known}, not {how!r}")


def require_operator(
    operator: str, name: object, function: object, output: object, on_error: object
) -> None:
    """Check the arguments that operators with a user's function share."""
    require_text(operator, "a name", name)
    require_function(operator, function)
    require_text(operator, "an output schema", output)
    require_on_error(operator, on_error)


def require_on_error(operator: str, on_error: object) -> None:
    """Raise ``ValueError`` unless this says what happens to rows that cannot be processed."""
    if on_error not in ("fail", "dead-letter"):
        raise ValueError(f'{operator}: on_error is "fail" or "dead-letter", not {on_error!r}')


def top_columns(name: str, count: int, by: By) -> tuple[OrderColumn, ...]:
    """Check what ``top`` takes; return the columns to order by."""
    require_text("top", "a name", name)
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"top takes a number of rows, not {type(count).__name__}")
    if count < 1:
        raise ValueError(f"top keeps at least one row, not {count}")
    return by_columns("top", by)


def require_ttl(operator: str, ttl: TimeToLive, clock: object) -> int | None:
    """The time-to-live in nanoseconds; ``ValueError`` unless it and its clock make sense."""
    lives = ttl_ns(ttl)
    wrong = clock_error(clock, lives)
    if wrong is not None:
        raise ValueError(f"{operator}: {wrong}")
    return lives


def require_time(operator: str, time: object) -> None:
    """Raise ``TypeError`` unless this is the name of a column, or None."""
    if time is not None:
        require_text(operator, "an output column as time", time)


def require_function(operator: str, function: object) -> None:
    """Raise ``TypeError`` unless this is callable."""
    if not callable(function):
        raise TypeError(f"{operator} takes a function, not {type(function).__name__}")


def require_sink(operator: str, sink: object) -> None:
    """Raise ``TypeError`` unless this is a sink."""
    if not all(callable(getattr(sink, verb, None)) for verb in ("encode", "open", "refuses")):
        raise TypeError(f"{operator} takes a sink such as FileSink(…), not {type(sink).__name__}")


def require_text(operator: str, wanted: str, value: object) -> None:
    """Raise ``TypeError`` unless this is a ``str``, naming the operator and what it wanted."""
    if not isinstance(value, str):
        raise TypeError(f"{operator} takes {wanted} as text (str), not {type(value).__name__}")


def named_texts(operator: str, columns: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The keyword arguments as pairs, in order; ``TypeError`` unless all are ``str``."""
    for name, text in columns.items():
        require_text(operator, f"{name}=…", text)
    return tuple(columns.items())
