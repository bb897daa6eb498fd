"""The labels of operators in messages to the user."""

from __future__ import annotations

from anabranch.dataflow.graph import (
    DistributeNode,
    Graph,
    GraphNode,
    KeyByNode,
    NamedNode,
    SelectNode,
    SplitNode,
    WhereNode,
    WithColumnsNode,
)

_LONGEST = 40


def label(graph: Graph, node: GraphNode) -> str:
    """An operator's kind and name; without a name, its text and the nearest named operator."""
    if isinstance(node, NamedNode):
        return f'{node.kind} "{node.name}"'
    if isinstance(node, KeyByNode):
        consumers = graph.consumers(node.id)
        # Most keys belong to a key_distribute, which the user knows by name.
        if len(consumers) == 1 and isinstance(consumers[0], DistributeNode):
            return f"key of {label(graph, consumers[0])}"
    return f"{node.kind}({_text(node)}) after {_nearest_named(graph, node)}"


def _text(node: GraphNode) -> str:
    match node:
        case WhereNode():
            text = f'"{node.condition}"'
        case SplitNode():
            text = f'{node.output}="{node.conditions[-1]}"'
        case SelectNode():
            text = ", ".join(f'"{expression}"' for expression in node.expressions)
        case WithColumnsNode():
            text = ", ".join(f'{name}="{expression}"' for name, expression in node.columns)
        case KeyByNode():
            text = ", ".join(f'"{expression}"' for _, expression in node.keys)
        case _:
            text = ""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _nearest_named(graph: Graph, node: GraphNode) -> str:
    while not isinstance(node, NamedNode):
        if not node.inputs:  # a union of nothing
            return "nothing"
        node = graph.node(node.inputs[0])
    return f'{node.kind} "{node.name}"'
