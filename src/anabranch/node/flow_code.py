"""A user's program by its name, ``module.py:flow``: loading it, and the hash of what it says.

The hash covers the module and every module below its directory that it imports, by any number of
steps, read from the source text: nothing is executed for it. What lies elsewhere (installed
packages, files that are read, modules imported by a computed name) is not covered.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from anabranch.dataflow.flow import Dataflow
from anabranch.errors import FlowNotFound

_DO = "Name a Python file and a dataflow in it, as in orders.py:flow."


def split_reference(reference: str) -> tuple[Path, str]:
    """The file and the name of a reference.

    >>> path, name = split_reference("jobs/orders.py:flow")
    >>> path.name, name
    ('orders.py', 'flow')
    """
    path, colon, name = reference.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise FlowNotFound(f"{reference!r} does not name a dataflow", do=_DO)
    return Path(path).absolute(), name


def code_of(reference: str) -> str:
    """The hash of a dataflow's source text: the same wherever its directory lies."""
    path, name = split_reference(reference)
    digest = hashlib.sha256(name.encode())
    for file in sorted(_covered(path)):
        text = file.read_bytes()
        head = f"\n{file.relative_to(path.parent).as_posix()} {len(text)}\n"
        digest.update(head.encode() + text)
    return digest.hexdigest()[:32]


def load_flow(reference: str) -> Dataflow:
    """Import the module, once and by its own name, as tasks do, and give its dataflow."""
    path, name = split_reference(reference)
    if not path.is_file():
        raise FlowNotFound("There is no such file", where=str(path), do=_DO)
    if not path.stem.isidentifier():
        raise FlowNotFound(
            f"{path.name} cannot be imported: its name is not a word",
            where=str(path),
            do="Rename the file: tasks import it by its name.",
        )
    directory = str(path.parent)
    if sys.path[:1] != [directory]:
        sys.path.insert(0, directory)
    module = _imported(path)
    flow = getattr(module, name, None)
    if not isinstance(flow, Dataflow):
        found = sorted(n for n, value in vars(module).items() if isinstance(value, Dataflow))
        there = f"It has: {', '.join(found)}." if found else "It has no dataflow at all."
        raise FlowNotFound(f"{path.name} has no dataflow {name!r}", where=str(path), do=there)
    return flow


def _imported(path: Path) -> object:
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(path.stem)
    except Exception as error:
        raise FlowNotFound(
            f"{path.name} cannot be imported: {type(error).__name__}: {error}",
            where=str(path),
            do="Mend the program: it must be importable without starting anything.",
        ) from error
    file = getattr(module, "__file__", None)
    if file is None or Path(file).resolve() != path.resolve():
        raise FlowNotFound(
            f"Another module is called {path.stem!r}",
            where=str(file),
            do=f"Rename {path.name}: tasks import it by its name.",
        )
    return module


def _covered(path: Path) -> set[Path]:
    """The module and what it imports below its directory."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError) as error:
            raise FlowNotFound(
                f"{file.name} cannot be read: {error}", where=str(file), do=_DO
            ) from error
        found.add(file)
        for name in _imports(tree, file, path.parent):
            waiting += _files(path.parent, name)
    return found


def _imports(tree: ast.Module, file: Path, root: Path) -> Iterator[str]:
    """The dotted names that a file may import, relative ones put together."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = file.relative_to(root).parts[: -node.level]
                base = ".".join([*package, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _files(root: Path, name: str) -> Iterator[Path]:
    """The files of a module and of the packages that it is in, as far as they are below a root."""
    parts = [part for part in name.split(".") if part]
    for end in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:end])
        for file in (place.with_name(place.name + ".py"), place / "__init__.py"):
            if file.is_file():
                yield file
