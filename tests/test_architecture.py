"""The rules of import between the rooms, read from the source text.

Nothing is imported to check it, so a room is covered from its first file on.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

PURE_ROOMS = {"dataflow", "plan", "operators", "progress", "rescale", "registry", "wire"}
PURE_MODULES = {
    "anabranch.errors",
    "anabranch.failures",
    "anabranch.messages",
    "anabranch.state.bins",
    "anabranch.state.keys",
    "anabranch.state.layout",
    "anabranch.state.rows",
    "anabranch.state.merge_policy",
    "anabranch.state.sorted_rows",
}
# coordinator/ is pure but for what performs the machine's decisions: modules, or packages.
IMPURE_EXCEPTIONS = {"anabranch.coordinator.driver", "anabranch.coordinator.records"}

EDGES = {"node", "spark", "sources", "sinks", "gateway", "http", "cli", "ui", "testing", "run"}
FILE_MODULES = {
    "anabranch.state.files",
    "anabranch.state.entry_lists",
    "anabranch.state.journal",
    "anabranch.state.leadership",
    "anabranch.state.lineage",
    "anabranch.coordinator.driver",
    "anabranch.coordinator.records",
}
# A port holds protocols and value types; it is pure itself, so everyone may import it.
PORT_NAMES = {"port", "ports"}

# Whatever waits, reads a clock, a file, a socket or chance.
WORLD = {
    *("asyncio", "glob", "http", "mmap", "multiprocessing", "os", "psutil", "random", "sched"),
    *("secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3"),
    *("ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid"),
}
WORLD_MODULES = {"concurrent.futures", "numpy.random", "pyarrow.fs", "pyarrow.parquet"}
WORLD_MODULES |= {"pyarrow.dataset", "pyarrow.csv", "pyarrow.json", "pyarrow.feather"}
PURE_PATHS = {"PurePath", "PurePosixPath", "PureWindowsPath"}
# Attributes by which an innocent import still reaches the world: np.random, datetime.now, ...
WORLD_ATTRIBUTES = {
    "np.random",
    "numpy.random",
    "pa.memory_map",
    "pa.OSFile",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
}
WORLD_CALLS = {"open", "input", "print"}

VAGUE_NAMES = {"utils", "util", "helpers", "common", "misc"}


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its dotted name and its parsed text."""

    name: str
    is_package: bool
    tree: ast.Module

    @property
    def room(self) -> str | None:
        """The room a module lives in; a module beside the rooms is a room of its own."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else None

    @property
    def is_port(self) -> bool:
        return self.name.rpartition(".")[2] in PORT_NAMES

    @property
    def is_pure(self) -> bool:
        if is_or_is_in(self.name, IMPURE_EXCEPTIONS):
            return False
        in_pure_room = self.room in PURE_ROOMS or self.room == "coordinator"
        return in_pure_room or self.is_port or self.name in PURE_MODULES


def modules(source: Path) -> Iterator[Module]:
    for path in sorted(source.glob("anabranch/**/*.py")):
        parts = list(path.relative_to(source).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        yield Module(name, is_package, ast.parse(path.read_text(encoding="utf-8")))


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Every (line, dotted name) that a module imports, also inside functions and for types only.

    ``from a import b`` yields ``a.b``: whether b is a module cannot be seen, and need not be.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def absolute(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = module.name.split(".")
    package = package[: len(package) - node.level + (1 if module.is_package else 0)]
    return ".".join([*package, *([node.module] if node.module else [])])


def is_or_is_in(name: str, parents: set[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def reaches_world(module: Module, name: str) -> bool:
    if name.startswith("pathlib"):
        # A protocol may say that it is given a path; what does the work is behind it.
        return name.removeprefix("pathlib.") not in PURE_PATHS and not module.is_port
    return is_or_is_in(name, WORLD | WORLD_MODULES)


def reaches_edge(name: str) -> bool:
    parts = name.split(".")
    if parts[0] != "anabranch" or len(parts) == 1:
        return False
    is_port = len(parts) > 2 and parts[2] in PORT_NAMES
    return (parts[1] in EDGES and not is_port) or is_or_is_in(name, FILE_MODULES)


def world_uses(module: Module) -> Iterator[tuple[int, str]]:
    """Every (line, text) where a module reaches the world without an import that shows it."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and tail(node) in WORLD_ATTRIBUTES:
            yield node.lineno, tail(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in WORLD_CALLS:
            yield node.lineno, f"{ast.unparse(node.func)}()"


def tail(node: ast.Attribute) -> str:
    """The last two names of ``a.b.c``."""
    value = node.value
    before = value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")
    return f"{before}.{node.attr}"


def violations(source: Path) -> list[str]:
    """Every broken rule under ``source``, as readable lines."""
    return [found for module in modules(source) for found in violations_of(module)]


def violations_of(module: Module) -> Iterator[str]:
    if module.name.rpartition(".")[2] in VAGUE_NAMES:
        yield f"{module.name}: the name says nothing"
    for line, name in imports(module):
        where = f"{module.name}:{line}"
        if module.room != "spark" and is_or_is_in(name, {"pyspark", "py4j"}):
            yield f"{where}: only spark/ imports {name}"
        elif module.is_pure and reaches_world(module, name):
            yield f"{where}: a pure module imports {name}"
        elif module.is_pure and reaches_edge(name):
            yield f"{where}: a pure module imports {name} of an edge"
    if module.is_pure:
        for line, text in world_uses(module):
            yield f"{module.name}:{line}: a pure module uses {text}"


def public_names(tree: ast.Module) -> set[str]:
    """The names without underscore that the top level of a module binds, also for types only."""
    bound: set[str] = set()
    statements = list(tree.body)
    while statements:
        node = statements.pop()
        match node:
            case ast.If() | ast.Try():
                statements += [*node.body, *node.orelse]
            case ast.ImportFrom(module="__future__"):
                pass
            case ast.Import() | ast.ImportFrom():
                bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound.add(node.name)
            case ast.Assign():
                bound |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                bound.add(name)
            case _:
                pass
    return {name for name in bound if not name.startswith("_")} - {"TYPE_CHECKING"}


def declared_names(tree: ast.Module) -> list[str]:
    """What ``__all__`` says; nothing where there is none."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.List() as value):
                return list(ast.literal_eval(value))
            case _:
                pass
    return []


# ------------------------------------------------------------------------------------ the project


def test_source_keeps_the_rules() -> None:
    assert violations(SOURCE) == []


def test_all_lists_the_public_names() -> None:
    tree = ast.parse((SOURCE / "anabranch" / "__init__.py").read_text(encoding="utf-8"))
    declared = declared_names(tree)
    assert len(declared) == len(set(declared))
    assert {name for name in declared if not name.startswith("_")} == public_names(tree)


def test_all_names_resolve() -> None:
    package = importlib.import_module("anabranch")
    missing = [name for name in getattr(package, "__all__", []) if not hasattr(package, name)]
    assert missing == []


# ------------------------------------------------------------------------------------ the checker


def plant(root: Path, path: str, text: str) -> list[str]:
    file = root / "anabranch" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return violations(root)


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (
            "plan/step.py",
            "import pyspark.sql as sql",
            "anabranch.plan.step:1: only spark/ imports pyspark.sql",
        ),
        (
            "state/run_file.py",
            "def f():\n    from pyspark import sql",
            "anabranch.state.run_file:2: only spark/ imports pyspark.sql",
        ),
        (
            "wire/frames.py",
            "import socket",
            "anabranch.wire.frames:1: a pure module imports socket",
        ),
        (
            "progress/antichain.py",
            "from time import monotonic",
            "anabranch.progress.antichain:1: a pure module imports time.monotonic",
        ),
        (
            "dataflow/flow.py",
            "from pathlib import Path",
            "anabranch.dataflow.flow:1: a pure module imports pathlib.Path",
        ),
        (
            "operators/map.py",
            "from ..spark.session import open_session",
            "anabranch.operators.map:1: a pure module imports anabranch.spark.session.open_session"
            " of an edge",
        ),
        (
            "rescale/__init__.py",
            "from ..sinks import file",
            "anabranch.rescale:1: a pure module imports anabranch.sinks.file of an edge",
        ),
        (
            "plan/write.py",
            "from anabranch.state import journal",
            "anabranch.plan.write:1: a pure module imports anabranch.state.journal of an edge",
        ),
        (
            "coordinator/machine.py",
            "import random",
            "anabranch.coordinator.machine:1: a pure module imports random",
        ),
        (
            "coordinator/machine.py",
            "from .driver.loop import Driver",
            "anabranch.coordinator.machine:1: a pure module imports"
            " anabranch.coordinator.driver.loop.Driver of an edge",
        ),
        (
            "coordinator/drivers.py",
            "import os",
            "anabranch.coordinator.drivers:1: a pure module imports os",
        ),
        (
            "sources/port.py",
            "import os",
            "anabranch.sources.port:1: a pure module imports os",
        ),
        (
            "state/rows.py",
            "import numpy as np\nr = np.random.default_rng()",
            "anabranch.state.rows:2: a pure module uses np.random",
        ),
        (
            "plan/clock.py",
            "import datetime\nnow = datetime.datetime.now(datetime.UTC)",
            "anabranch.plan.clock:2: a pure module uses datetime.now",
        ),
        (
            "registry/local.py",
            "text = open('x').read()",
            "anabranch.registry.local:1: a pure module uses open()",
        ),
        ("plan/utils.py", "", "anabranch.plan.utils: the name says nothing"),
    ],
)
def test_checker_finds_a_planted_violation(
    tmp_path: Path, path: str, text: str, found: str
) -> None:
    assert plant(tmp_path, path, text) == [found]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("spark/session.py", "from pyspark.sql import SparkSession\nimport os, time"),
        ("state/files.py", "import os\nfrom pathlib import Path"),
        ("coordinator/driver.py", "import asyncio\nfrom ..spark import session"),
        ("coordinator/driver/loop.py", "import threading"),
        ("coordinator/records/writing.py", "from anabranch.state.journal import Journal"),
        (
            "plan/step.py",
            "from anabranch.sources.port import Slice\nfrom ..state.bins import BinSet",
        ),
        ("dataflow/graph.py", "from pathlib import PurePosixPath\nimport datetime\nimport ostrich"),
        ("sinks/port.py", "from pathlib import Path"),
        ("operators/map.py", "from . import port\nimport sys\nfrom .aggregate import open_group"),
    ],
)
def test_checker_accepts_what_the_rules_allow(tmp_path: Path, path: str, text: str) -> None:
    assert plant(tmp_path, path, text) == []


def test_public_names_are_what_the_top_level_binds() -> None:
    tree = ast.parse(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "from .a import b, c as d, e as _e\n"
        "if TYPE_CHECKING:\n    from .f import g\n"
        "h = 1\ni: int = 2\n_j = 3\n"
        "def k(): local = 1\n"
        "class L: m = 1\n"
        "__all__ = ['b', 'd']\n"
    )
    assert public_names(tree) == {"b", "d", "g", "h", "i", "k", "L"}
    assert declared_names(tree) == ["b", "d"]
    assert declared_names(ast.parse("__all__: list[str] = ['x']")) == ["x"]
