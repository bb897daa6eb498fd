"""Which files lie at a place: a directory, a file, or a pattern.

Made for directories with very many files, nearly all of them known: a known name costs one look
into a set, and only unknown files are asked for their size and time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from anabranch.errors import SourceUnavailable, UnreadableFile

_WILD = re.compile(r"[*?\[]")
_ANY_DEPTH = "**"

#: Names of files in a directory that need not be looked at.
Known = Callable[[str], Set[str]]


class FoundFile(NamedTuple):
    """A file at a place. Sorts in the order in which files are read."""

    mtime_ns: int
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look: a directory that must be there, and a pattern below it, name by name."""

    base: str
    pattern: tuple[str, ...]
    recursive: bool


def place_of(path: str, *, recursive: bool) -> Place:
    """Split a path into the directory before its first wildcard and the pattern after it.

    >>> place_of("/in/2024-*/*.json", recursive=False)
    Place(base='/in', pattern=('2024-*', '*.json'), recursive=False)
    """
    names = os.path.abspath(path).lstrip("/").split("/")
    wild = next((i for i, name in enumerate(names) if _WILD.search(name)), len(names))
    return Place("/" + "/".join(names[:wild]), _without_repeats(names[wild:]), recursive)


def present(place: Place) -> Place:
    """Make sure that there is something to list; `SourceUnavailable` if not.

    A place that is a file becomes the directory that holds it, with its name as the pattern.
    """
    if not place.pattern and os.path.isfile(place.base):
        return Place(os.path.dirname(place.base), (os.path.basename(place.base),), False)
    with _unavailable(place.base), os.scandir(place.base):
        return place


def find(place: Place, known: Known) -> list[FoundFile]:
    """List the files at a place that are not known, oldest first, equally old ones by path.

    Left out are names that start with `.` or `_` or end in `._COPYING_`; empty files, which count
    as not there yet; and links to directories. `UnreadableFile` if the path spells out a name that
    Spark does not read.
    """
    found: dict[str, FoundFile] = {}
    with _unavailable(place.base):
        for path in _below(place.base, place.pattern, place, known):
            status = stat_file(path)
            if status is not None and status.st_size > 0:
                found[path] = FoundFile(status.st_mtime_ns, _readable(path), status.st_size)
    return sorted(found.values())


def stat_file(path: str) -> os.stat_result | None:
    """Ask for size and time of a file; None when it is not there."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceUnavailable(
            f"the input file {path} cannot be looked at: {error.strerror or error}",
            do="Check its permissions and that its file system is mounted.",
        ) from error


def _below(directory: str, pattern: tuple[str, ...], place: Place, known: Known) -> Iterator[str]:
    """Go down one name of the pattern; below its end lie all files of the directory."""
    if pattern and not _WILD.search(pattern[0]):
        yield from _named(os.path.join(directory, pattern[0]), pattern[1:], place, known)
        return
    if pattern and pattern[0] == _ANY_DEPTH:
        yield from _below(directory, pattern[1:], place, known)
    seen = known(directory)
    for entry in _entries(directory, place):
        name = entry.name
        if entry.is_dir(follow_symlinks=False):
            below = _pattern_within(name, pattern, place)
            if below is not None:
                yield from _below(entry.path, below, place, known)
        elif name not in seen and _is_wanted(name, pattern) and entry.is_file():
            yield entry.path


def _is_wanted(name: str, pattern: tuple[str, ...]) -> bool:
    """Whether a file of that name is at the end of the pattern."""
    if _hidden(name) or len(pattern) > 1 or pattern == (_ANY_DEPTH,):
        return False
    return not pattern or fnmatchcase(name, pattern[0])


def _pattern_within(name: str, pattern: tuple[str, ...], place: Place) -> tuple[str, ...] | None:
    """Tell what to look for inside a directory of that name; None to stay out of it."""
    if _hidden(name):
        return None
    if not pattern:
        return () if place.recursive else None
    if pattern[0] == _ANY_DEPTH:
        return pattern
    return pattern[1:] if fnmatchcase(name, pattern[0]) else None


def _named(path: str, rest: tuple[str, ...], place: Place, known: Known) -> Iterator[str]:
    """Follow a name that the pattern spells out: no need to list its directory."""
    directory, name = os.path.split(path)
    if os.path.isdir(path):
        yield from _below(path, rest, place, known)
    elif not rest and os.path.isfile(path) and name not in known(directory):
        yield path


def _entries(directory: str, place: Place) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except FileNotFoundError:
        # A directory below the base may be removed while its neighbours are listed.
        if directory == place.base:
            raise


def _hidden(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith("._COPYING_")


def _readable(path: str) -> str:
    """Refuse names that Spark cannot open: better now than in the middle of a step."""
    try:
        path.encode()
    except UnicodeEncodeError:
        why = "its path is not UTF-8"
    else:
        name = os.path.basename(path)
        if ":" in name:
            why = "its name has a colon, which Hadoop's file system takes for the end of a scheme"
        elif overlooked(name):
            why = "files of such names are no data to it, and it finds no row in them"
        else:
            return path
    raise UnreadableFile(
        f"Spark cannot read the file {path!r}: {why}",
        do="Rename it; in a directory, a name that starts with _ is left out.",
    )


def overlooked(name: str) -> bool:
    """Whether Spark reads a file of that name as if it were not there.

    >>> [overlooked(name) for name in ("_done", ".a", "a._COPYING_", "_day=1", "a")]
    [True, True, True, False, False]
    """
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return hidden or name.endswith("._COPYING_")


def _without_repeats(pattern: list[str]) -> tuple[str, ...]:
    """Fold `**/**` into one: it means the same and would visit everything twice."""
    pairs = zip(pattern, [None, *pattern], strict=False)
    return tuple(name for name, before in pairs if not name == before == _ANY_DEPTH)


@contextmanager
def _unavailable(base: str) -> Iterator[None]:
    """Turn refusals of the file system into `SourceUnavailable`."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceUnavailable(
            f"there is no file or directory {base}",
            do="Create it before the pipeline starts, or correct the source's path.",
        ) from error
    except OSError as error:
        raise SourceUnavailable(
            f"{error.filename or base} cannot be listed: {error.strerror or error}",
            do="Check its permissions and that its file system is mounted.",
        ) from error
