"""A source that follows a script: the story of a test, told from top to bottom."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, TypeAlias

import pyarrow as pa

from anabranch.errors import ReadFailed
from anabranch.protocol.sources import NO_LIMIT, Batch, Limit, SourceLog
from anabranch.records.slices import RangeSlice
from anabranch.sources.arguments import as_count, as_schema, set_fields
from anabranch.sources.columns import source_column
from anabranch.sources.positions import Position, PositionOnly, decode_position, encode_position

_KIND = "script"


class Cue(Enum):
    """Words of a script that are not rows."""

    PAUSE = "PAUSE"
    EOF = "EOF"

    def __repr__(self) -> str:
        """Spell it as in a script."""
        return self.value


#: One call of `next` finds nothing new.
PAUSE: Final = Cue.PAUSE
#: The source ends. Only at the end of a script; without it the source stays open, with no news.
EOF: Final = Cue.EOF


@dataclass(frozen=True, slots=True)
class Fail:
    """Reading the page that follows fails with `ReadFailed`, the first `times` times.

    Every attempt counts, in whichever process: a task's retry, a step that runs again, a plan
    that runs again after a restart. `times=None` fails always.
    """

    message: str
    times: int | None = 1

    def __post_init__(self) -> None:
        """Refuse what would never fail."""
        if self.times is not None:
            as_count(self.times, "times")


#: A page that fails once, for no particular reason.
ABORT: Final = Fail("the script says ABORT")

Row: TypeAlias = tuple[object, ...]
Page: TypeAlias = tuple[Row, ...]
Line: TypeAlias = Page | Cue | Fail


@dataclass(frozen=True, slots=True, init=False)
class ScriptedSource(PositionOnly):
    """Pages of rows, one page a step, with `PAUSE`, `Fail`, `ABORT` and `EOF` between them.

    A page is a list of rows, a row a tuple in the schema's order or a dictionary (what it leaves
    out is NULL). A page is one slice of partition 0; rows are numbered through all pages.

    What `Fail` has counted is kept as empty files in the directory `scratch`, so that retries in
    other processes see it. Without one, a directory is made up when the source is constructed:
    enough where the source is pickled to its tasks, not where each process imports the program
    that constructs it, and a program that starts again counts from zero. It goes when the
    process that constructed the source ends.

    >>> source = ScriptedSource("k string, v bigint",
    ...                         [[("a", 1), ("b", 2)], PAUSE, [{"k": "a"}], EOF])
    >>> [row for page in source.pages for row in page]
    [('a', 1), ('b', 2), ('a', None)]
    """

    partitions: ClassVar[int] = 1

    schema: pa.Schema
    script: tuple[Line, ...] = field(hash=False)
    scratch: str | None

    def __init__(
        self,
        schema: str | pa.Schema,
        script: Sequence[object],
        *,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        """Check the script whole, so that a slip in it is not taken for a finding."""
        schema = as_schema(schema)
        lines = tuple(_line(number, line, schema) for number, line in enumerate(script))
        _check_order(lines)
        if scratch is None and any(isinstance(line, Fail) for line in lines):
            scratch = os.path.join(tempfile.gettempdir(), f"anabranch-script-{uuid.uuid4().hex}")
            atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        scratch = None if scratch is None else os.fspath(scratch)
        set_fields(self, schema=schema, script=lines, scratch=scratch)

    @property
    def pages(self) -> tuple[Page, ...]:
        """The pages alone: what is read in the end."""
        return tuple(line for line in self.script if isinstance(line, tuple))

    def open(self, position: bytes | None, log: SourceLog) -> ScriptEnumerator:
        """Go on with the line after `position`."""
        if position is None:
            return ScriptEnumerator(self, ScriptPosition(source=_KIND))
        return ScriptEnumerator(self, decode_position(position, ScriptPosition, _KIND))

    def read(self, slice: RangeSlice, /) -> Iterator[pa.RecordBatch]:
        """Read a page, unless the script says that this fails."""
        start = 0
        for number, line in enumerate(self.script):
            if not isinstance(line, tuple):
                continue
            if (start, start + len(line)) == (slice.start, slice.end):
                before = self.script[number - 1] if number else None
                if isinstance(before, Fail) and self._fails(before, number):
                    raise ReadFailed(before.message, where=_described(slice))
                yield _to_batch(line, self.schema)
                return
            start += len(line)
        raise ReadFailed("the script has no such page", where=_described(slice))

    def _fails(self, fail: Fail, number: int) -> bool:
        """Claim one of its turns to fail; creating a file is atomic between processes."""
        if fail.times is None:
            return True
        scratch = str(self.scratch)
        os.makedirs(scratch, exist_ok=True)
        for turn in range(fail.times):
            try:
                with open(os.path.join(scratch, f"line-{number}-turn-{turn}"), "x"):
                    return True
            except FileExistsError:
                continue
        return False


class ScriptPosition(Position, frozen=True, kw_only=True):
    """How many lines of the script, and how many rows of its pages, have been handed out."""

    line: int = 0
    rows: int = 0


class ScriptEnumerator:
    """Follows a script line by line. Pages are never cut, so no limit is heeded."""

    def __init__(self, source: ScriptedSource, start: ScriptPosition) -> None:
        self._script = source.script
        self._line = start.line
        self._rows = start.rows

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """Hand out the next page, or nothing at a PAUSE and after the last line."""
        while isinstance(self._current(), Fail):
            self._line += 1
        line = self._current()
        first = self._rows
        if isinstance(line, tuple):
            self._rows += len(line)
        if line is not None and line is not EOF:
            self._line += 1
        slices = (RangeSlice(0, first, self._rows),) if first < self._rows else ()
        position = ScriptPosition(source=_KIND, line=self._line, rows=self._rows)
        ended = self._current() is EOF
        return Batch(slices, encode_position(position), self._rows - first, ended)

    def files(self) -> frozenset[str]:
        """Name nothing: the position is all there is."""
        return frozenset()

    def _current(self) -> Line | None:
        return self._script[self._line] if self._line < len(self._script) else None


def _line(number: int, line: object, schema: pa.Schema) -> Line:
    match line:
        case Cue() | Fail():
            return line
        case list() | tuple():
            return _page(f"line {number + 1} of the script", line, schema)
        case _:
            raise TypeError(
                f"line {number + 1} of the script must be a list of rows, PAUSE, ABORT, "
                f"Fail(…) or EOF, not {line!r}"
            )


def _page(place: str, rows: Sequence[object], schema: pa.Schema) -> Page:
    if not rows:
        raise ValueError(f"{place} is a page without rows: say PAUSE for a step without any")
    page = tuple(_row(place, row, schema) for row in rows)
    try:
        _to_batch(page, schema)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    return page


def _row(place: str, row: object, schema: pa.Schema) -> Row:
    if isinstance(row, Mapping):
        unknown = [str(name) for name in row if name not in schema.names]
        if unknown:
            raise ValueError(f"{place}: the schema has no column {', '.join(unknown)}: {row!r}")
        return tuple(row.get(name) for name in schema.names)
    if not isinstance(row, tuple | list):
        raise TypeError(f"{place}: a row must be a tuple or a dictionary, not {row!r}")
    if len(row) != len(schema):
        raise ValueError(
            f"{place}: a row has {len(row)} values and the schema {len(schema)} columns: {row!r}"
        )
    return tuple(row)


def _check_order(lines: Sequence[Line]) -> None:
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else None
        if line is EOF and following is not None:
            raise ValueError(f"line {number + 1} of the script is EOF and more follows")
        if isinstance(line, Fail) and not isinstance(following, tuple):
            raise ValueError(
                f"line {number + 1} of the script is {line!r}: the page that fails must follow it"
            )


def _to_batch(page: Page, schema: pa.Schema) -> pa.RecordBatch:
    columns = [source_column([row[i] for row in page], column) for i, column in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _described(slice: RangeSlice) -> str:
    return f"ScriptedSource, rows {slice.start} to {slice.end}"
