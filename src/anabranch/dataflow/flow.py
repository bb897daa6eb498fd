"""``Dataflow``, the user's starting point."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from anabranch.dataflow.dead_letters import malformed_letters
from anabranch.dataflow.graph import Graph, SinkNode, SourceNode
from anabranch.dataflow.sql.sql_text import quote, sql_literal
from anabranch.dataflow.stream import GraphBuilder, Stream, require_sink, require_text, union
from anabranch.protocol.sinks import DeadLetterRows, DroppedRows

if TYPE_CHECKING:
    from anabranch.protocol.sinks import Sink
    from anabranch.protocol.sources import Separating, Source

_ABSENT = object()


class Dataflow:
    """A graph of named operators, from sources to sinks. Building it runs nothing.

    The name identifies the pipeline's directory. Operator names are unique in a dataflow: they name
    the state on disk, the metric and the log line. An operator that keeps its name keeps its state.
    """

    __slots__ = ("_recorder", "name")

    def __init__(self, name: str) -> None:
        require_text("Dataflow", "a name", name)
        self.name = name
        self._recorder = GraphBuilder()

    def __repr__(self) -> str:
        return f"<Dataflow {self.name}: {len(self._recorder.nodes)} operators>"

    def source(self, name: str, source: Source, *, dead_letter: Sink | None = None) -> Stream:
        """The rows of a source. This does not open the source.

        Rows that a source with ``malformed="dead-letter"`` cannot read become dead letters. They go
        to the sink ``dead_letter``, which is named after the source with ``-malformed`` appended,
        or by default to the sink of ``Dataflow.dead_letters``.
        """
        require_text("source", "a name", name)
        # Do not compute the schema: validation reports a wrong one.
        if inspect.getattr_static(source, "schema", _ABSENT) is _ABSENT:
            raise TypeError(f"source takes a source with a schema, not {type(source).__name__}")
        policy = getattr(source, "malformed", "fail")
        if dead_letter is not None:
            require_sink("source", dead_letter)
            if policy != "dead-letter":
                raise ValueError(
                    f"source {name!r} has malformed={policy!r}: a dead_letter sink goes with "
                    'malformed="dead-letter"'
                )
        if policy == "fail":
            return self._add_source(name, source)
        sink = dead_letter or (DeadLetterRows() if policy == "dead-letter" else DroppedRows())
        return self._add_separating(name, cast("Separating", source), sink)

    def _add_source(self, name: str, source: Source) -> Stream:
        return Stream(self._recorder, self._recorder.add(SourceNode, (), name, source))

    def union(self, tag: str, /, **streams: Stream) -> Stream:
        """Merge streams with any columns into one: ``flow.union("input", a=…, b=…)``.

        The column ``tag`` names the stream of each row. Columns that a stream lacks are NULL in its
        rows. If all streams have the same key from ``key_by``, the union keeps it.
        """
        require_text("union", "the name of a column", tag)
        return union(self._recorder, list(streams.values()), (tag, tuple(streams)))

    def dead_letters(self, name: str, sink: Sink) -> None:
        """Write the rows that could not be processed to a sink.

        They come from operators with ``on_error="dead-letter"`` and from sources with
        ``malformed="dead-letter"`` that have no sink of their own. Each becomes one row with the
        operator, the key, the row, and the traceback or reason.
        """
        require_text("dead_letters", "a name", name)
        require_sink("dead_letters", sink)
        self._recorder.add(SinkNode, (), name, sink, letters=True)

    def _add_separating(self, name: str, source: Separating, sink: Sink) -> Stream:
        """The well-formed rows of a source; the malformed ones go to the sink."""
        columns = source.schema.names
        parted = source.separated()
        raw, file = parted.schema.names[-2:]
        rows = self._add_source(name, parted)
        letters = rows.where(f"{quote(raw)} is not null").select(
            *malformed_letters(name, quote(raw), quote(file), unread_columns(columns))
        )
        self._recorder.add(SinkNode, (letters._id,), f"{name}-malformed", sink, letters=True)
        return rows.where(f"{quote(raw)} is null").select(*(quote(column) for column in columns))

    def graph(self) -> Graph:
        """A frozen copy of the dataflow so far."""
        return Graph(self.name, tuple(self._recorder.nodes))


def unread_columns(columns: Sequence[str]) -> str:
    """SQL for why a row is malformed: the columns without a value.

    It reads every column, because which columns are read can decide whether a row is malformed.

    >>> print(unread_columns(["a"])[40:77])
    concat_ws(', ', case when `a` is null
    """
    cases = ", ".join(
        f"case when {quote(name)} is null then {sql_literal(name)} end" for name in columns
    )
    missing = f"concat('no value for ', nullif(concat_ws(', ', {cases}), ''))"
    return f"coalesce({missing}, 'it has other columns than the schema')"
