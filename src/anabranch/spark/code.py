"""The user's code in the store: pickled once under its hash, loaded once per process.

Only code is pickled, never state, so that opening state runs no code.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pyspark import cloudpickle

from anabranch.errors import CorruptEntry, NameTaken
from anabranch.store.access import check_not_open_to_all, limit_rights, room_for_tasks
from anabranch.store.disk import FILE_MODE
from anabranch.store.files import create_file, ensure_directory, put_file, read_file, sync_directory
from anabranch.task.program import Program

_loaded: dict[tuple[str, str], Program] = {}


def dump_code(value: object) -> bytes:
    """Pickle a value as tasks get it, code included."""
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def save_program(store: Path, program: Program) -> str:
    """Save the program as ``code/<hash>`` and return the hash. Repairs a damaged file."""
    data = dump_code(program)
    code = hashlib.sha256(data).hexdigest()[:32]
    path = store / "code" / code
    mode = room_for_tasks(store)
    ensure_directory(path.parent, within=store, mode=mode)
    limit_rights(path.parent, mode)
    try:
        create_file(path, data, within=store, mode=mode & FILE_MODE)
    except NameTaken:
        limit_rights(path, mode & FILE_MODE)
        if read_file(path) != data:
            put_file(path, data, mode=mode & FILE_MODE)
            sync_directory(path.parent)
    _loaded[str(store), code] = program
    return code


def load_program(store: Path, code: str) -> Program:
    """Load the program of a hash, from memory if this process has loaded it before.

    Loading runs what is in the file: ``DirectoryOpenToAll`` if everybody may have written it.
    """
    if (known := _loaded.get((str(store), code))) is not None:
        return known
    path = store / "code" / code
    data = read_file(path)
    if data is None or hashlib.sha256(data).hexdigest()[:32] != code:
        raise CorruptEntry(
            "The pickled dataflow is missing or damaged",
            where=str(path),
            do="Run the pipeline again from its program, which writes it again.",
        )
    for written in (store, path.parent, path):
        check_not_open_to_all(written)
    program: Program = cloudpickle.loads(data)
    _loaded[str(store), code] = program
    return program
