"""The user's code in the store: pickled once under its hash, loaded once per process.

Only code is pickled, never state, so that opening state runs no code.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pyspark import cloudpickle

from anabranch.errors import CorruptEntry, NameTaken
from anabranch.store.files import create_file, ensure_directory, put_file, read_file, sync_directory
from anabranch.task.program import Program

_loaded: dict[tuple[str, str], Program] = {}


def save_program(store: Path, program: Program) -> str:
    """Save the program as ``code/<hash>`` and return the hash. Repairs a damaged file."""
    data = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
    code = hashlib.sha256(data).hexdigest()[:32]
    path = store / "code" / code
    ensure_directory(path.parent, within=store)
    try:
        create_file(path, data, within=store)
    except NameTaken:
        if read_file(path) != data:
            put_file(path, data)
            sync_directory(path.parent)
    _loaded[str(store), code] = program
    return code


def load_program(store: Path, code: str) -> Program:
    """Load the program of a hash, from memory if this process has loaded it before."""
    known = _loaded.get((str(store), code))
    if known is not None:
        return known
    path = store / "code" / code
    data = read_file(path)
    if data is None or hashlib.sha256(data).hexdigest()[:32] != code:
        raise CorruptEntry(
            "The pickled dataflow is missing or damaged",
            where=str(path),
            do="Run the pipeline again from its program, which writes it again.",
        )
    program: Program = cloudpickle.loads(data)
    _loaded[str(store), code] = program
    return program
