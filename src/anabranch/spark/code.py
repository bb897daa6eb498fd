"""The user's code in the store: pickled once under its hash, loaded once per process.

Only code is pickled, never state: opening state runs nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from pyspark import cloudpickle

from anabranch.errors import CorruptEntry, NameTaken
from anabranch.node.program import Program
from anabranch.state.files import create_file, ensure_directory, read_file

_loaded: dict[tuple[str, str], Program] = {}


def save_program(store: Path, program: Program) -> str:
    """Keep the program under ``code/<hash>``; gives the hash."""
    data = cloudpickle.dumps(program)
    code = hashlib.sha256(data).hexdigest()[:32]
    ensure_directory(store / "code", within=store)
    with contextlib.suppress(NameTaken):
        create_file(store / "code" / code, data, within=store)
    _loaded[str(store), code] = program
    return code


def load_program(store: Path, code: str) -> Program:
    """The program of that hash, from memory if this process has loaded it before."""
    known = _loaded.get((str(store), code))
    if known is not None:
        return known
    path = store / "code" / code
    data = read_file(path)
    if data is None or hashlib.sha256(data).hexdigest()[:32] != code:
        raise CorruptEntry(
            "The pickled dataflow is missing or damaged",
            where=str(path),
            do="Run the pipeline again from its program: it is written anew.",
        )
    program: Program = cloudpickle.loads(data)
    _loaded[str(store), code] = program
    return program
