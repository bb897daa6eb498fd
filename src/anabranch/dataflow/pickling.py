"""The user's code as tasks get it: pickled. Finds the variable that cannot be."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from anabranch.dataflow import graph as nodes
from anabranch.dataflow.findings import Finding
from anabranch.dataflow.functions import describe_function
from anabranch.dataflow.graph import Graph, GraphNode, label
from anabranch.errors import Problem

#: Pickles a value; raises if it cannot.
Dumps = Callable[[Any], object]


class _Part(NamedTuple):
    """A value that another one refers to: by this name, as a variable of ``owner``, if any."""

    name: str
    value: Any
    owner: object = None


def unpicklable(graph: Graph, dumps: Dumps) -> list[Problem]:
    """The operators that cannot be sent to tasks, each with the variable that is to blame."""
    if _refusal(graph, dumps) is None:
        return []
    problems = []
    for node in graph.nodes:
        error = _refusal(node, dumps)
        if error is not None:
            problems.append(_finding(node, error, dumps).at(label(graph, node)))
    return problems


def _refusal(value: object, dumps: Dumps) -> Exception | None:
    try:
        dumps(value)
    except Exception as error:
        return error
    return None


def _finding(node: GraphNode, error: Exception, dumps: Dumps) -> Finding:
    code = _code_of(node)
    found = _culprit(_Part("", code), dumps, set())
    reason = f"{type(error).__name__}: {error}"
    if found is None:
        return Finding(
            f"{_text(code)} cannot be sent to tasks: {reason}",
            "Build it from values that can be pickled.",
        )
    owner = found.owner or code
    within = "" if owner is code or not callable(owner) else f" in {_name(owner)}"
    kind = f"{type(found.value).__module__}.{type(found.value).__qualname__}"
    return Finding(
        f'{_text(code)} uses "{found.name}"{within}, a {kind.removeprefix("builtins.")}, which '
        f"cannot be sent to tasks: {reason}",
        _remedy(node, owner, found, kind),
    )


def _code_of(node: GraphNode) -> object:
    match node:
        case nodes.ProcessNode(process=process):
            return process
        case nodes.SourceNode(source=source):
            return source
        case nodes.SinkNode(sink=sink):
            return sink
        case _:
            return getattr(node, "function", node)


def _remedy(node: GraphNode, owner: object, found: _Part, kind: str) -> str:
    if kind.startswith("pyspark."):
        return "Spark's objects stay on the driver: use .transform for code over DataFrames."
    if isinstance(owner, FunctionType):
        if isinstance(node, nodes.ProcessNode):
            name = f", as self.{found.name}" if found.name.isidentifier() else ""
            return f"Create it in __init__{name}: each task makes its own."
        place = "the function" if owner.__name__ == "<lambda>" else owner.__name__
        return f"Create it inside {place}: each task then makes its own."
    if isinstance(owner, type):
        return f"Create it in {owner.__name__}.__init__: each task then makes its own."
    return "Create it when it is first used, in the task, and leave it out of __getstate__."


def _text(code: object) -> str:
    if isinstance(code, type):
        return f"class {_name(code)}"
    return f"function {_name(code)}" if callable(code) else f"its {type(code).__qualname__}"


def _name(code: Callable[..., Any]) -> str:
    return code.__qualname__ if isinstance(code, type) else describe_function(code)


def _culprit(part: _Part, dumps: Dumps, seen: set[int]) -> _Part | None:
    """The innermost part that cannot be pickled, below one that cannot."""
    for inner in _parts(part):
        if id(inner.value) in seen:
            continue
        seen.add(id(inner.value))
        if _refusal(inner.value, dumps) is not None:
            return _culprit(inner, dumps, seen) or inner
    return None


def _parts(whole: _Part) -> Iterator[_Part]:
    """What pickling a value by its content takes with it."""
    value = whole.value
    if isinstance(value, functools.partial):
        yield _Part("func", value.func)
        for number, argument in enumerate(value.args, start=1):
            yield _Part(f"argument {number}", argument, value.func)
        yield from (_Part(name, each, value.func) for name, each in value.keywords.items())
    elif inspect.ismethod(value):
        yield _Part("self", value.__self__, value.__func__)
        yield _Part(value.__name__, value.__func__)
    elif isinstance(value, FunctionType):
        yield from (_Part(name, each, value) for name, each in _variables(value))
    elif isinstance(value, type):
        for name, each in vars(value).items():
            own = each.__func__ if isinstance(each, classmethod | staticmethod) else each
            yield _Part(name, own, None if isinstance(own, FunctionType) else value)
    elif isinstance(value, Mapping):
        yield from (_inside(whole, f"[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (_inside(whole, f"[{place}]", each) for place, each in enumerate(value))
    else:
        yield from (_inside(whole, f".{name}", each) for name, each in _attributes(value))


def _inside(whole: _Part, access: str, value: object) -> _Part:
    """A part of a value, named by how one gets at it; a function is named by its own variables."""
    name = f"{whole.name}{access}" if whole.name else access.lstrip(".")
    return _Part(name, value, whole.owner)


def _variables(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The variables that a function takes from outside: captured, global, and defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    arguments = inspect.getfullargspec(function)
    defaults = function.__defaults__ or ()
    yield from zip(arguments.args[len(arguments.args) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    if "__wrapped__" in vars(function):
        yield "__wrapped__", vars(function)["__wrapped__"]


def _global_names(code: CodeType) -> dict[str, None]:
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    fields = [*getattr(type(value), "__struct_fields__", ())]
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        fields += [slots] if isinstance(slots, str) else list(slots)
    for name in dict.fromkeys([*getattr(value, "__dict__", ()), *fields]):
        if hasattr(value, name):
            yield name, getattr(value, name)
