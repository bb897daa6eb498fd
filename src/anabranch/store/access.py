"""Who may use a pipeline's directory: its owner, and its group if the owner lets it.

What others could do harm with is private: a lock that they hold keeps the pipeline down, an address
has a token in it, and a pickled program that they write is run. All other files follow the umask,
because published output is a hard link out of the store and must keep its readers.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from anabranch.errors import DirectoryOpenToAll
from anabranch.store.files import ensure_directory, store_errors

PRIVATE_FILE = 0o600
PRIVATE_ROOM = 0o700


def open_directory(path: Path) -> None:
    """Create a pipeline's directory, for its owner alone, or check the one that exists."""
    ensure_directory(path, mode=PRIVATE_ROOM)
    check_not_open_to_all(path)


def check_not_open_to_all(path: Path) -> None:
    """Raise ``DirectoryOpenToAll`` if everybody may write to a file or directory that exists."""
    with store_errors(path, "look at"):
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            return
    if mode & stat.S_IWOTH:
        raise DirectoryOpenToAll(
            "Everybody may write to the pipeline's directory, or to code in it",
            where=str(path),
            do=f"Nothing was opened. See that no stranger has put anything there, then take the "
            f"right away: chmod o-w {path}",
        )


def room_for_tasks(directory: Path) -> int:
    """The mode of a room that tasks read: open to the group if the pipeline's directory is.

    So executors of another user can be let in by their group.
    """
    with store_errors(directory, "look at"):
        group = os.stat(directory).st_mode & (stat.S_IRGRP | stat.S_IXGRP)
    return PRIVATE_ROOM | group


def limit_rights(path: Path, mode: int) -> None:
    """Take all rights beyond ``mode`` from a file or directory that was made with more.

    One that belongs to somebody else stays as it is.
    """
    with store_errors(path, "restrict the rights on"):
        found = stat.S_IMODE(os.stat(path).st_mode)
        if found & 0o777 & ~mode:
            with contextlib.suppress(PermissionError):
                os.chmod(path, found & ~0o777 | found & mode)
