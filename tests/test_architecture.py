"""The rules of import between the rooms, read from the source text; and the public surface.

Nothing is imported to check the rooms, so one is covered from its first file on.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import errors, messages

SOURCE = Path(__file__).parent.parent / "src"

# From the top to the bottom: a room may import those below it, never one above.
ROOMS = (
    *("testing", "cli", "run", "pipeline", "ui", "http", "gateway"),
    *("node", "spark", "task", "coordinator", "sinks", "sources"),
    *("net", "homes", "journal", "connector", "wire", "registry", "progress", "rescale"),
    *("plan", "operators", "runs", "store", "dataflow"),
    *("protocol", "messages", "records", "errors"),
)
RANK = {room: rank for rank, room in enumerate(reversed(ROOMS))}

# Rooms that decide from values alone, and the modules of other rooms that do.
PURE = {
    *("anabranch.wire", "anabranch.registry", "anabranch.progress", "anabranch.rescale"),
    *("anabranch.plan", "anabranch.operators", "anabranch.dataflow", "anabranch.coordinator"),
    *("anabranch.protocol", "anabranch.messages", "anabranch.records", "anabranch.errors"),
    *("anabranch.runs.changes", "anabranch.runs.entries", "anabranch.runs.expiry"),
    *("anabranch.runs.keys", "anabranch.runs.compaction", "anabranch.runs.rows"),
    *("anabranch.runs.sorted_rows", "anabranch.runs.hash_index", "anabranch.runs.flat_columns"),
    *("anabranch.runs.due", "anabranch.runs.sort_pairs"),
}
# coordinator/ is pure but for what performs the machine's decisions.
IMPURE = {"anabranch.coordinator.driver"}
# A protocol may say that it is given a path; what does the work is behind it.
NAMES_PATHS = {"anabranch.protocol"}

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
    def is_pure(self) -> bool:
        return is_pure(self.name)


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


def is_pure(name: str) -> bool:
    return is_or_is_in(name, PURE) and not is_or_is_in(name, IMPURE)


def room_of(name: str) -> str | None:
    """The room that a dotted name is in, if it is ours and in one."""
    parts = name.split(".")
    return parts[1] if parts[0] == "anabranch" and len(parts) > 1 else None


def reaches_world(module: Module, name: str) -> bool:
    if name.startswith("pathlib"):
        named = is_or_is_in(module.name, NAMES_PATHS)
        return name.removeprefix("pathlib.") not in PURE_PATHS and not named
    return is_or_is_in(name, WORLD | WORLD_MODULES)


def points_up(module: Module, name: str) -> bool:
    """Whether an import leads to a room above the module's own."""
    room = room_of(name)
    if room is None or room == module.room or module.room is None:
        return False
    return RANK.get(room, -1) >= RANK.get(module.room, len(RANK))


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
    if module.room is not None and module.room not in RANK:
        yield f"{module.name}: the map has no room {module.room}"
    if module.name.rpartition(".")[2] in VAGUE_NAMES:
        yield f"{module.name}: the name says nothing"
    for line, name in imports(module):
        where = f"{module.name}:{line}"
        if module.room != "spark" and is_or_is_in(name, {"pyspark", "py4j"}):
            yield f"{where}: only spark/ imports {name}"
        elif module.is_pure and reaches_world(module, name):
            yield f"{where}: a pure module imports {name}"
        elif points_up(module, name):
            yield f"{where}: {module.room}/ imports {name} of a room above it"
        elif module.is_pure and room_of(name) in RANK and not is_pure(name):
            yield f"{where}: a pure module imports {name}, which is not pure"
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


def test_the_journal_reaches_its_directory_through_its_port() -> None:
    beyond = {"os", "pathlib", "shutil", "fcntl", "anabranch.store"}
    reaching = {
        module.name
        for module in modules(SOURCE)
        for _, name in imports(module)
        if module.room == "journal" and is_or_is_in(name, beyond)
    }
    assert reaching == {"anabranch.journal.file_directory"}


def test_all_lists_the_public_names() -> None:
    tree = ast.parse((SOURCE / "anabranch" / "__init__.py").read_text(encoding="utf-8"))
    declared = declared_names(tree)
    assert len(declared) == len(set(declared))
    assert {name for name in declared if not name.startswith("_")} == public_names(tree)


def test_all_names_resolve() -> None:
    package = importlib.import_module("anabranch")
    missing = [name for name in getattr(package, "__all__", []) if not hasattr(package, name)]
    assert missing == []


# What may be defined in several modules, because each stands for the same thing in its place.
SHARED_FUNCTIONS = {"main", "run", "register", "check"}


def defined_twice(source: Path) -> list[str]:
    """Public classes and functions that several modules define, with these modules."""
    found: dict[str, list[str]] = {}
    for module in modules(source):
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append(module.name)
    return [
        f"{name}: {', '.join(places)}"
        for name, places in sorted(found.items())
        if len(places) > 1 and not name.startswith("_") and name not in SHARED_FUNCTIONS
    ]


def test_a_public_name_stands_for_one_thing() -> None:
    assert defined_twice(SOURCE) == []


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert ab.__version__ == project["project"]["version"]


def test_every_branch_of_errors_is_public() -> None:
    made = errors.AnabranchError.__subclasses__()
    branches = [branch for branch in made if branch.__module__ == errors.__name__]
    assert branches
    assert [branch.__name__ for branch in branches if branch.__name__ not in ab.__all__] == []


def test_what_a_process_is_given_of_a_message_is_with_the_messages() -> None:
    given = {
        kind.__name__: kind
        for name, method in vars(ab.Process).items()
        if name.startswith("on_")
        for kind in typing.get_type_hints(method).values()
        if getattr(kind, "_is_protocol", False)
    }
    assert set(given) == {"ArrivingState", "KeyRegister", "NewShares", "LeavingState"}
    assert all(getattr(messages, name) is getattr(ab, name) for name in given)
    assert {kind.__module__ for kind in given.values()} == {messages.__name__}


def test_what_run_takes_is_for_users() -> None:
    taken = set(inspect.signature(ab.run).parameters)
    assert taken == {
        *("flow", "directory", "workers", "bins", "master", "spark_conf", "settings"),
        *("isolate_workers", "take_over", "rewind", "accept_duplicates", "watch"),
    }


# ------------------------------------------------------------------------------------ the checker


def test_a_name_that_is_defined_twice_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "plan/step.py", "class Plan: ...\ndef main(): ...\ndef _same(): ...")
    plant(tmp_path, "node/plan.py", "class Plan: ...\ndef main(): ...\ndef _same(): ...")
    assert defined_twice(tmp_path) == ["Plan: anabranch.node.plan, anabranch.plan.step"]


def plant(root: Path, path: str, text: str) -> list[str]:
    file = root / "anabranch" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return violations(root)


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("plan/lower.py", "import pyspark.sql", "1: only spark/ imports pyspark.sql"),
        (
            "runs/run.py",
            "def f():\n    from pyspark import sql",
            "2: only spark/ imports pyspark.sql",
        ),
        ("wire/frames.py", "import socket", "1: a pure module imports socket"),
        ("progress/chain.py", "from time import sleep", "1: a pure module imports time.sleep"),
        ("dataflow/flow.py", "from pathlib import Path", "1: a pure module imports pathlib.Path"),
        ("coordinator/machine.py", "import random", "1: a pure module imports random"),
        ("coordinator/drivers.py", "import os", "1: a pure module imports os"),
        ("protocol/sources.py", "import os", "1: a pure module imports os"),
        ("records/bins.py", "from pathlib import Path", "1: a pure module imports pathlib.Path"),
        (
            "coordinator/machine.py",
            "from .driver.loop import Driver",
            "1: a pure module imports anabranch.coordinator.driver.loop.Driver, which is not pure",
        ),
        (
            "operators/map.py",
            "from anabranch.store.disk import disk",
            "1: a pure module imports anabranch.store.disk.disk, which is not pure",
        ),
        (
            "plan/write.py",
            "from ..runs import run_file",
            "1: a pure module imports anabranch.runs.run_file, which is not pure",
        ),
        (
            "runs/rows.py",
            "import numpy as np\nr = np.random.default_rng()",
            "2: a pure module uses np.random",
        ),
        (
            "plan/clock.py",
            "import datetime\nnow = datetime.datetime.now(datetime.UTC)",
            "2: a pure module uses datetime.now",
        ),
        ("registry/local.py", "text = open('x').read()", "1: a pure module uses open()"),
        ("plan/utils.py", "", " the name says nothing"),
        ("state/rows.py", "", " the map has no room state"),
    ],
)
def test_checker_finds_a_planted_violation(
    tmp_path: Path, path: str, text: str, found: str
) -> None:
    name = "anabranch." + path.removesuffix(".py").replace("/", ".")
    assert plant(tmp_path, path, text) == [f"{name}:{found}"]


@pytest.mark.parametrize("room", ROOMS[1:])
def test_checker_finds_an_import_that_points_up(tmp_path: Path, room: str) -> None:
    above = ROOMS[ROOMS.index(room) - 1]
    planted = plant(tmp_path, f"{room}/planted.py", f"from anabranch.{above} import thing")
    line = f"anabranch.{room}.planted:1: {room}/ imports anabranch.{above}.thing of a room above it"
    assert planted == [line]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("spark/session.py", "from pyspark.sql import SparkSession\nimport os, time"),
        ("store/files.py", "import os\nfrom pathlib import Path"),
        ("coordinator/driver/loop.py", "import threading\nfrom ...journal import journal"),
        (
            "plan/step.py",
            "from anabranch.protocol.sources import Source\nfrom ..records import bins",
        ),
        ("dataflow/graph.py", "from pathlib import PurePosixPath\nimport datetime\nimport ostrich"),
        ("protocol/sinks.py", "from pathlib import Path"),
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
