"""The checks that need no Spark, made before it starts: they take milliseconds, Spark seconds."""

from __future__ import annotations

from pathlib import Path

from anabranch.dataflow.graph import Graph, SinkNode, SourceNode, label
from anabranch.dataflow.pickling import Dumps, unpicklable
from anabranch.dataflow.validate import validate
from anabranch.errors import AnabranchError, InvalidDataflow, Problem
from anabranch.protocol.preflight import Preflight
from anabranch.store.files import list_names


def check_before_spark(
    graph: Graph, directory: Path, dumps: Dumps, *, is_running: bool = False
) -> None:
    """Check names, schemas, plain column references, the user's code, and places to read and write.

    Raises ``InvalidDataflow`` with all problems that can be found without Spark's analyzer, or
    what opening a source or sink would raise. If Spark ``is_running``, its analyzer is at hand and
    lists all problems at once: then only what it does not see is checked here.
    """
    problems: list[Problem] = []
    try:
        validate(graph)
    except InvalidDataflow as error:
        problems += error.problems
    if problems and is_running:
        return
    problems += unpicklable(graph, dumps)
    if problems:
        raise InvalidDataflow(graph.name, problems)
    # Only leaders have been there: nothing was ever committed.
    fresh = set(list_names(directory / "journal")) <= {"leader"}
    for node in graph.nodes:
        described = getattr(node, node.kind, None)
        if isinstance(node, SourceNode | SinkNode) and isinstance(described, Preflight):
            try:
                described.preflight(fresh=fresh)
            except AnabranchError as error:
                place = f" ({error.where})" if error.where else ""
                raise type(error)(
                    f"{label(graph, node)}: {error.what}{place}", do=error.do
                ) from error
