"""The dataflow: what the user starts from."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from anabranch.dataflow.graph import Graph, SinkNode, SourceNode
from anabranch.dataflow.stream import Recorder, Stream, require_sink, require_text, union

if TYPE_CHECKING:
    from anabranch.sinks.port import Sink
    from anabranch.sources.port import Source

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
        self._recorder = Recorder()

    def __repr__(self) -> str:
        """Its name and size."""
        return f"<Dataflow {self.name}: {len(self._recorder.nodes)} operators>"

    def source(self, name: str, source: Source) -> Stream:
        """The rows of a source. The source is not opened."""
        require_text("source", "a name", name)
        # Looked at without being computed: a schema that is wrong is validation's to report.
        if inspect.getattr_static(source, "schema", _ABSENT) is _ABSENT:
            raise TypeError(f"source takes a source with a schema, not {type(source).__name__}")
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
        """Where the rows go for which operators with ``on_error="dead-letter"`` raised.

        Each becomes one row that says which operator it was, the key, the row and the traceback.
        """
        require_text("dead_letters", "a name", name)
        require_sink("dead_letters", sink)
        self._recorder.add(SinkNode(self._recorder.next_id, (), name, sink))

    def graph(self) -> Graph:
        """What has been written so far, frozen."""
        return Graph(self.name, tuple(self._recorder.nodes))
