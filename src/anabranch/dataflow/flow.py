"""The dataflow: what the user starts from."""

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
    """A graph of named operators, from sources to sinks. Says what is to be done; does nothing.

    The name identifies the pipeline's directory. Operators' names are unique in a dataflow: they
    name the state on disk, the metric and the log line, so a name that stays keeps its state.
    """

    __slots__ = ("_recorder", "name")

    def __init__(self, name: str) -> None:
        """Start an empty dataflow."""
        require_text("Dataflow", "a name", name)
        self.name = name
        self._recorder = GraphBuilder()

    def __repr__(self) -> str:
        """Its name and size."""
        return f"<Dataflow {self.name}: {len(self._recorder.nodes)} operators>"

    def source(self, name: str, source: Source, *, dead_letter: Sink | None = None) -> Stream:
        """The rows of a source. The source is not opened.

        The rows that a source with ``malformed="dead-letter"`` cannot read are dead letters: they
        go to ``dead_letter``, a sink of the source's name with ``-malformed`` after it, and without
        one to that of ``Dataflow.dead_letters``.
        """
        require_text("source", "a name", name)
        # Looked at without being computed: a schema that is wrong is validation's to report.
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
            return self._recorded(name, source)
        sink = dead_letter or (DeadLetterRows() if policy == "dead-letter" else DroppedRows())
        return self._separated(name, cast("Separating", source), sink)

    def _recorded(self, name: str, source: Source) -> Stream:
        node = SourceNode(self._recorder.next_id, (), name, source)
        return Stream(self._recorder, self._recorder.add(node))

    def union(self, tag: str, /, **streams: Stream) -> Stream:
        """Several streams as one, whatever their columns: ``flow.union("input", a=…, b=…)``.

        The column ``tag`` says which stream a row is from; a column that a stream lacks is NULL
        in its rows. Streams that all have the same key from ``key_by`` keep it.
        """
        require_text("union", "the name of a column", tag)
        return union(self._recorder, list(streams.values()), (tag, tuple(streams)))

    def dead_letters(self, name: str, sink: Sink) -> None:
        """Where rows go that could not be processed, of all operators and sources.

        That is, of operators with ``on_error="dead-letter"``, and of sources with
        ``malformed="dead-letter"`` and no sink of their own. Each becomes one row that says which
        operator it was, the key, the row, and the traceback or what was wrong with it.
        """
        require_text("dead_letters", "a name", name)
        require_sink("dead_letters", sink)
        self._recorder.add(SinkNode(self._recorder.next_id, (), name, sink, letters=True))

    def _separated(self, name: str, source: Separating, sink: Sink) -> Stream:
        """The well-formed rows; the others go to the sink."""
        columns = source.schema.names
        parted = source.separated()
        raw, file = parted.schema.names[-2:]
        rows = self._recorded(name, parted)
        letters = rows.where(f"{quote(raw)} is not null").select(
            *malformed_letters(name, quote(raw), quote(file), unread_columns(columns))
        )
        node = SinkNode(
            self._recorder.next_id, (letters._id,), f"{name}-malformed", sink, letters=True
        )
        self._recorder.add(node)
        return rows.where(f"{quote(raw)} is null").select(*(quote(column) for column in columns))

    def graph(self) -> Graph:
        """What has been written so far, frozen."""
        return Graph(self.name, tuple(self._recorder.nodes))


def unread_columns(columns: Sequence[str]) -> str:
    """SQL for the reason why a row is malformed: the columns that it gave no value for.

    It looks at every column of the row: whether a row is malformed can depend on which columns are
    read, and so all of them always are.

    >>> print(unread_columns(["a"])[40:77])
    concat_ws(', ', case when `a` is null
    """
    cases = ", ".join(
        f"case when {quote(name)} is null then {sql_literal(name)} end" for name in columns
    )
    missing = f"concat('no value for ', nullif(concat_ws(', ', {cases}), ''))"
    return f"coalesce({missing}, 'it has other columns than the schema')"
