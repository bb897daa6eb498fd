"""Files as a source: each file that appears at a place is read once, whole, by Spark."""

from __future__ import annotations

import copy
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from anabranch.errors import ChangedDataflow, FileChanged, FileGone
from anabranch.protocol.sources import NO_LIMIT, Batch, Limit, SourceLog
from anabranch.records.slices import FileSlice, Slice
from anabranch.sources.arguments import as_count, as_options, as_schema, as_size, set_fields
from anabranch.sources.discovery import Place, find, place_of, present, stat_file
from anabranch.sources.file_uri import file_tag, spark_path
from anabranch.sources.ledger import Ledger, Mark, PathList, keep_list, read_list
from anabranch.sources.positions import Position, decode_position, encode_position

__all__ = ["FileEnumerator", "FileSource", "file_tag", "spark_path"]

POLICIES = ("fail", "drop", "dead-letter")
#: Formats whose reader can say of a row that it is malformed.
CHECKED_FORMATS = frozenset({"json", "csv", "xml"})
RAW, FILE = "_raw", "_file"

_KIND = "files"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_COMPLETE = (
    "Input files must be complete when they appear and stay as they are: write them elsewhere "
    "on the same file system, then move them into place."
)


class SparkFiles:
    """A source whose slices are files, which Spark reads."""

    __slots__ = ()

    def check(self, slices: Sequence[Slice]) -> None:
        """Raise `FileGone` or `FileChanged` for a file that is not as it was planned."""
        for part in slices:
            if isinstance(part, FileSlice):
                _check_file(part)

    def paths(self, slices: Sequence[Slice]) -> tuple[str, ...]:
        """The files, in the order of their slices."""
        return tuple(part.path for part in slices if isinstance(part, FileSlice))


@dataclass(frozen=True, slots=True, init=False)
class FileSource(SparkFiles):
    """Files of any format that Spark reads, from a directory, a file or a pattern.

    Each file is read exactly once, known by its path, in the order of (time of change, path)
    among the files that are there when the directory is listed. Left out are names that start
    with `.` or `_` or end in `._COPYING_`; empty files, which count as not there yet; links to
    directories; and subdirectories, unless `recursive`. `*`, `?`, `[…]` and `**` in the path
    make it a pattern (`glob.escape` for names that have such letters); a directory that matches
    stands for its files. Directory names such as `day=7` do not become columns.

    Move files into place when they are complete. A file that is listed while it is being written
    is planned with the size it has then; if it grows before its step is committed, the step fails
    with `FileChanged`. What is changed after that is not noticed, and neither is a change that
    leaves size and time alone, which a file system with a coarse clock can hide.

    With `watch=False` the source reads what is there when the pipeline is first started, and ends.

    `max_files_per_step` and `max_bytes_per_step` (a number, or text such as `"64m"`) bound a
    step; a single file larger than that is a step of its own.

    `malformed` says what becomes of a row of JSON, CSV or XML that does not fit the schema:
    `"fail"` fails the step, naming the file and the raw text; `"drop"` leaves it out and counts
    it; `"dead-letter"` sends it to the `dead_letter` sink of `Dataflow.source`.

    >>> FileSource("in", "csv", "k string, v bigint", options={"header": True}).options
    (('header', 'true'),)
    """

    path: str
    format: str
    schema: pa.Schema
    options: tuple[tuple[str, str], ...]
    watch: bool
    max_files_per_step: int
    max_bytes_per_step: int
    recursive: bool
    malformed: str
    separates: bool

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str,
        schema: str | pa.Schema,
        options: Mapping[str, object] | None = None,
        *,
        watch: bool = True,
        max_files_per_step: int = 1000,
        max_bytes_per_step: int | str = "1g",
        recursive: bool = False,
        malformed: str = "fail",
    ) -> None:
        """Check and keep the arguments. The file system is not touched before `open`."""
        set_fields(
            self,
            path=_as_path(path),
            format=_as_format(format),
            schema=_as_columns(schema),
            options=as_options(options),
            watch=bool(watch),
            max_files_per_step=as_count(max_files_per_step, "max_files_per_step"),
            max_bytes_per_step=as_size(max_bytes_per_step, "max_bytes_per_step"),
            recursive=bool(recursive),
            malformed=_as_policy(malformed, format, options),
            separates=False,
        )

    def separated(self) -> FileSource:
        """The same source with a malformed row's raw text and file as its last two columns."""
        parted = copy.copy(self)
        schema = self.schema
        for wanted in (RAW, FILE):
            schema = schema.append(pa.field(_free_name(wanted, schema), pa.string()))
        set_fields(parted, schema=schema, separates=True)
        return parted

    def open(self, position: bytes | None, log: SourceLog) -> FileEnumerator:
        """Look at the place and go on after `position`.

        Raises `SourceUnavailable` when the directory is missing or cannot be listed, and
        `ChangedDataflow` when the position belongs to another place.
        """
        place = place_of(self.path, recursive=self.recursive)
        if position is None:
            kept = FilesPosition(source=_KIND, base=place.base)
        else:
            kept = decode_position(position, FilesPosition, _KIND)
            _refuse_other_place(kept.base, place.base)
        if self.watch or kept.fixed is None:
            place = present(place)
        return FileEnumerator(self, place, kept, log)

    def preflight(self, *, fresh: bool) -> None:
        """Raise `SourceUnavailable` when the directory is missing or cannot be listed.

        A source that does not watch needs it only the first time.
        """
        if self.watch or fresh:
            present(place_of(self.path, recursive=self.recursive))

    def log_files(self, position: bytes) -> frozenset[str]:
        """Names in the source log that this position needs."""
        return _log_files(decode_position(position, FilesPosition, _KIND))


class FilesPosition(Position, frozen=True, kw_only=True):
    """Where a file source stands.

    `seen` is every file handed out. `fixed` is all that a source which does not watch will ever
    hand out, decided at its first listing; None for one that watches.
    """

    base: str
    seen: Mark = msgspec.field(default_factory=Mark)
    fixed: PathList | None = None


class FileEnumerator:
    """Hands out the files of a `FileSource`, and lists anew when it has handed out all."""

    def __init__(
        self, source: FileSource, place: Place, start: FilesPosition, log: SourceLog
    ) -> None:
        """Read the ledger; without watching, decide what is there, unless that is decided."""
        self._source = source
        self._place = place
        self._ledger = Ledger(start.seen, log)
        self._fixed: PathList | None = None
        self._waiting: deque[str] = deque()
        #: of the step that is being filled: the tags of its files, the bytes that it has room for
        self._tags: set[int] = set()
        self._room = source.max_bytes_per_step
        if source.watch:
            return
        if start.fixed is None:
            self._list()
            self._fixed = keep_list(tuple(self._waiting), log, "fixed")
        else:
            self._fixed = start.fixed
            self._waiting.extend(p for p in read_list(start.fixed, log) if p not in self._ledger)

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """Hand out the oldest files that fit into a step. `limit.rows` cannot be heeded."""
        self._tags = set()
        self._room = self._source.max_bytes_per_step
        return self.more(limit)

    def more(self, limit: Limit = NO_LIMIT) -> Batch:
        """Hand out files that fit into the step beside those that it has."""
        if self._source.watch and not self._waiting:
            self._list()
        slices = self._take(limit.bytes)
        self._ledger.add([part.path for part in slices])
        ended = not self._source.watch and not self._waiting
        if ended:
            # All of it is in the ledger: the list has no more use.
            self._fixed = PathList()
        position = encode_position(self._position())
        return Batch(tuple(slices), position, None, ended, full=bool(self._waiting))

    def files(self) -> frozenset[str]:
        """Names in the source log that the current position needs."""
        return _log_files(self._position())

    def _position(self) -> FilesPosition:
        return FilesPosition(
            source=_KIND, base=self._place.base, seen=self._ledger.mark, fixed=self._fixed
        )

    def _list(self) -> None:
        self._waiting.extend(found.path for found in find(self._place, self._ledger.names_in))

    def _take(self, max_bytes: int | None) -> list[FileSlice]:
        """Take files off the queue up to the bounds; at least one for a step that has none.

        Files are told apart in a step by their tag: one whose tag is taken waits for the next step.
        """
        tags = self._tags
        room = self._room if max_bytes is None else min(self._room, max_bytes)
        slices: list[FileSlice] = []
        passed_over: list[str] = []
        while self._waiting and len(tags) < self._source.max_files_per_step:
            path = self._waiting.popleft()
            part = self._as_it_is(path)
            if part is None:
                continue
            if tags and part.size > room:
                self._waiting.appendleft(path)
                break
            if file_tag(path) in tags:
                passed_over.append(path)
                continue
            slices.append(part)
            tags.add(file_tag(path))
            self._room -= part.size
            room -= part.size
        self._waiting.extendleft(reversed(passed_over))
        return slices

    def _as_it_is(self, path: str) -> FileSlice | None:
        """Look at a file again: it may have waited for many steps since it was listed.

        One that went away unread was never promised, unless the source does not watch.
        """
        status = stat_file(path)
        if status is None and not self._source.watch:
            raise _gone(path)
        if status is None or (self._source.watch and status.st_size == 0):
            return None
        return FileSlice(path, status.st_size, status.st_mtime_ns)


def _log_files(position: FilesPosition) -> frozenset[str]:
    segments = list(position.seen.segments)
    if position.fixed is not None and position.fixed.segment is not None:
        segments.append(position.fixed.segment)
    return frozenset(segment.name for segment in segments)


def _refuse_other_place(former: str, now: str) -> None:
    """Refuse a directory that is neither the former one nor above or inside it.

    Files are known by their paths, so moved ones would silently be read again.
    """
    if os.path.commonpath([former, now]) not in (former, now):
        raise ChangedDataflow(
            f"the pipeline has read files below {former} so far and is now told to read those "
            f"below {now}: files that were moved there would be read again",
            do="Give the source its former path (a symbolic link will do), or start in a new "
            "directory.",
        )


def _check_file(planned: FileSlice) -> None:
    status = stat_file(planned.path)
    if status is None:
        raise _gone(planned.path)
    if (status.st_size, status.st_mtime_ns) != (planned.size, planned.mtime_ns):
        raise FileChanged(
            f"the input file {planned.path} changed after it was planned: it had {planned.size} "
            f"bytes (time of change {planned.mtime_ns} ns) and has {status.st_size} "
            f"({status.st_mtime_ns} ns)",
            do=_COMPLETE,
        )


def _gone(path: str) -> FileGone:
    return FileGone(
        f"the input file {path} is not there any more",
        do="Put it back: a file may be removed when there is a kept checkpoint, and none that is "
        "older than the step that read the file.",
    )


def _as_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"path must be text, not {text!r}")
    if not text:
        raise ValueError("path must not be empty")
    if _SCHEME.match(text):
        raise ValueError(
            f"path must be one of a local or mounted file system, not an address: {text!r}"
        )
    return text


def _as_columns(schema: str | pa.Schema) -> pa.Schema:
    columns = as_schema(schema)
    for name in columns.names:
        if name.lower() == "_metadata":
            raise ValueError(
                f"schema has a column named {name}: Spark tells the file of a row under that name. "
                "Rename it in the files"
            )
    return columns


def _as_format(format: str) -> str:
    if not isinstance(format, str):
        raise TypeError(f"format must be text such as 'json', not {format!r}")
    if not format.strip():
        raise ValueError("format must not be empty: 'json', 'csv', 'parquet', 'orc', 'text', …")
    return format


def _as_policy(malformed: str, format: str, options: Mapping[str, object] | None) -> str:
    if malformed not in POLICIES:
        raise ValueError(f"malformed must be one of {', '.join(POLICIES)}, not {malformed!r}")
    if malformed == "fail":
        return malformed
    if format.lower() not in CHECKED_FORMATS:
        raise ValueError(
            f"malformed={malformed!r} is for {', '.join(sorted(CHECKED_FORMATS))}: "
            f"the format {format!r} has no malformed rows, only unreadable files"
        )
    taken = {"mode", "columnnameofcorruptrecord"} & {name.lower() for name in options or ()}
    if taken:
        raise ValueError(
            f"option {taken.pop()!r} and malformed={malformed!r} both say what becomes of "
            "malformed rows: leave one out"
        )
    return malformed


def _free_name(wanted: str, schema: pa.Schema) -> str:
    """A column's name that no other column has; Spark does not tell upper from lower case."""
    taken = {name.lower() for name in schema.names}
    while wanted in taken:
        wanted += "_"
    return wanted
