"""The input that waits for the next step: it grows until it is taken.

A source gives one batch to an offer, and adds to it where it can (``Growing``). What it has handed
out is never asked for again, so an offer that was taken stays until the commit of its step, and
what comes meanwhile is the offer of the step after it. A source that is paused stays open and is
told what is committed; it is not asked, and nobody waits for it.

Enumerators are not shared between threads: every call of one happens under a lock of its source,
which is held for as long as the call takes. No source waits for another one. The offers themselves
are guarded by a lock that is held briefly.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec

from anabranch.errors import StoreError
from anabranch.node.source_log import StoreLog
from anabranch.node.source_share import Gathered
from anabranch.plan.physical import Physical
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure, InputLimit, Offer
from anabranch.protocol.sources import (
    Attended,
    Enumerator,
    Forgetting,
    Growing,
    Limit,
    Opener,
    Source,
    SourceLog,
)
from anabranch.records.plan import Input
from anabranch.store.retention import LOG_ROOM

RETRY_SECONDS = 1.0
"""How long a source that failed is left alone."""


def open_plainly(name: str, source: Source, position: bytes | None, log: SourceLog) -> Enumerator:
    """Open a source that needs nothing but its description."""
    return source.open(position, log)


class Offers:
    """The open sources of a pipeline, and what they offer."""

    def __init__(
        self,
        physical: Physical,
        store: Path,
        read: Sequence[Input],
        pending: Sequence[Input],
        step: int,
        limit: InputLimit,
        clock: Callable[[], float],
        open_source: Opener = open_plainly,
    ) -> None:
        """Open every source after ``pending``, else after ``read``, else at its beginning.

        ``step`` is the last committed one; ``pending`` is the input of the step after it, where
        that is planned already.
        """
        self._sources: dict[str, Source] = {n.name: n.source for n in physical.sources()}
        self._log = StoreLog(store)
        self._open_source = open_source
        self._clock = clock
        self._asking = {name: threading.RLock() for name in self._sources}
        self._guard = threading.Lock()
        self._enumerators: dict[str, Enumerator] = {}
        self._ended: set[str] = set()
        self._partitions: dict[str, int] = {}
        self._paused: frozenset[str] = frozenset()
        self._positions = {g.source: bytes(g.position) for g in (*read, *pending)}
        self._step = step
        self._limit = limit
        self._taken: tuple[Input, ...] | None = tuple(pending) or None
        self._taken_offer: Offer | None = None
        self._growing = Gathered()
        self._committed: tuple[Input, ...] = tuple(read)
        #: the commit that each source was told of
        self._acknowledged: dict[str, tuple[Input, ...]] = {}
        self._failed: dict[str, Failure] = {}
        self._growers: set[str] = set()
        self._attended: set[str] = set()
        self._retry_at: dict[str, float] = {}
        self._closed = False
        try:
            for name in self._sources:
                self._open(name)
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether the sources have let go: nobody knows any more what they need."""
        return self._closed

    @property
    def failure(self) -> Failure | None:
        """Why a source gives nothing now."""
        with self._guard:
            return next(iter(self._failed.values()), None)

    def offer(self, *, running: bool) -> Offer:
        """What waits: for the next step, or, while that is ``running``, for the one after it.

        Whoever took an offer without a row had a reason of its own for the step, and may be gone:
        to its successor what waits behind it is told, or it would never take it again.
        """
        with self._guard:
            if self._taken_offer is None or running:
                return self._told()
            if self._taken_offer.rows:
                return self._taken_offer
            return msgspec.structs.replace(self._told(), step=self._step + 1)

    def settled(self, step: int) -> tuple[Input, ...] | None:
        """The input that a step will have, once nothing can be added to its offer; else None."""
        with self._guard:
            offer = self._told()
            return self._growing.inputs() if offer.full and offer.step == step else None

    def close_offer(self, step: int, inputs: tuple[Input, ...]) -> None:
        """Let the offer of a step stay as it is, also under a larger limit, if it is still this.

        Somebody has prepared for it: that counts for more than some rows.
        """
        with self._guard:
            same = [(g.source, g.slices) for g in inputs] == [
                (g.source, g.slices) for g in self._growing.inputs()
            ]
            if same and self._told().step == step:
                self._growing.closed = True

    def take(self, step: int) -> tuple[Input, ...] | None:
        """The input of a step, the same whenever it is asked for; None if it is not offered."""
        with self._guard:
            if step != self._step + 1:
                return None
            if self._taken is None:
                self._taken_offer = self._told()
                self._taken = tuple(
                    msgspec.structs.replace(given, files=self._files_of(given))
                    for given in self._growing.inputs()
                )
                self._growing = Gathered()
            return self._taken

    def commit(self, step: int, positions: tuple[Input, ...], limit: InputLimit) -> None:
        """The step that was taken is committed: what follows is for the next one."""
        with self._guard:
            self._step = step
            self._limit = limit
            self._taken = self._taken_offer = None
            self._committed = positions

    def replayed(self, step: int, limit: InputLimit) -> None:
        """A step that was read long ago is done again: what waits, or is taken, waits on."""
        with self._guard:
            self._step = step
            self._limit = limit

    def limit(self, limit: InputLimit) -> None:
        """Let the offer grow up to another limit."""
        with self._guard:
            self._limit = limit

    def pause(self, names: Iterable[str]) -> None:
        """Ask nothing of these sources from now on, and all others again.

        What they have given stays in its offer. One that is just being asked may give once more.
        """
        with self._guard:
            self._paused = frozenset(names)

    def poll(self, names: Sequence[str] | None = None) -> bool:
        """Acknowledge what is committed, and ask for more; whether the offer has changed.

        Of these sources, or of all. One that failed is left alone for a while.
        """
        before = self.failure
        changed = False
        for name in self._asking if names is None else names:
            with self._asking[name]:
                if self._closed or self._clock() < self._retry_at.get(name, 0.0):
                    continue
                with self._watched(name):
                    if name not in self._enumerators:
                        self._open(name)
                    self._acknowledge(name)
                    changed |= self._ask(name)
        return changed or self.failure != before

    def acknowledge(self) -> None:
        """Tell sources of the last commit where they were not told yet: they are about to close.

        One that fails is not tried again: whoever opens it next tells it.
        """
        for name in self._asking:
            with self._asking[name]:
                if name in self._enumerators:
                    with self._watched(name):
                        self._acknowledge(name)

    def files(self) -> frozenset[str]:
        """The files of the source log that are needed: by sources, offers and the last commit."""
        found: frozenset[str] = frozenset()
        for name in self._asking:
            with self._asking[name]:
                if name in self._enumerators:
                    found |= self._enumerators[name].files()
        # After the sources were asked: what one hands out meanwhile is in the offer.
        with self._guard:
            inputs = (*self._committed, *(self._taken or ()), *self._growing.inputs())
        needed = {name for given in inputs for name in self._files_of(given)}
        return frozenset({*needed, *(f"{LOG_ROOM}/{name}" for name in found)})

    def _files_of(self, given: Input) -> tuple[str, ...]:
        """The files in the store that a position needs."""
        source = self._sources.get(given.source)
        names = () if source is None else source.log_files(bytes(given.position))
        return tuple(sorted(f"{LOG_ROOM}/{name}" for name in names))

    def forget(self, kept: Sequence[Sequence[Input]]) -> None:
        """Let sources forget the input that no kept position needs; what fails is tried again.

        A source that some kept step has not read yet keeps everything.
        """
        for name in self._asking:
            found = [[bytes(g.position) for g in each if g.source == name] for each in kept]
            with self._asking[name]:
                enumerator = self._enumerators.get(name)
                if isinstance(enumerator, Forgetting) and all(found):
                    with contextlib.suppress(StoreError):
                        enumerator.forget([position for each in found for position in each])

    def check(self, inputs: Sequence[Input]) -> None:
        """Raise if some input is not what it was when it was planned."""
        for given in inputs:
            self._sources[given.source].check(given.slices)

    def close(self) -> None:
        """Let the sources let go: every one is asked, whatever the others raise."""
        self._closed = True
        with contextlib.ExitStack() as closing:
            for name in self._asking:
                closing.callback(self._close, name)
        self._sources = {}

    def _close(self, name: str) -> None:
        with self._asking[name]:
            enumerator = self._enumerators.pop(name, None)
            if isinstance(enumerator, Attended):
                enumerator.close()

    def _open(self, name: str) -> None:
        source = self._sources[name]
        opened = self._open_source(name, source, self._positions.get(name), self._log)
        self._enumerators[name] = opened
        # Asked once: whether an object has a protocol's methods takes long to find out.
        (self._growers.add if isinstance(opened, Growing) else self._growers.discard)(name)
        (self._attended.add if isinstance(opened, Attended) else self._attended.discard)(name)

    @contextlib.contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        """Keep why a source failed; it is opened again where it stood, after a while."""
        try:
            yield
        except Exception as error:
            self._acknowledged.pop(name, None)
            with contextlib.suppress(Exception):
                self._close(name)
            with self._guard:
                self._failed[name] = failure_of(error)
                self._retry_at[name] = self._clock() + RETRY_SECONDS
        else:
            with self._guard:
                self._failed.pop(name, None)

    def _acknowledge(self, name: str) -> None:
        """Tell a source that wants to know what the last commit covers (R5), once."""
        with self._guard:
            committed = self._committed
        if name in self._attended and self._acknowledged.get(name) is not committed:
            enumerator = cast(Attended, self._enumerators[name])
            for given in committed:
                if given.source == name:
                    enumerator.acknowledge(bytes(given.position))
        self._acknowledged[name] = committed

    def _ask(self, name: str) -> bool:
        """Ask one source for what its share has room for."""
        with self._guard:
            asked = self._growing
            room = self._room(name)
            begun = name in asked.shares and bool(asked.shares[name].slices)
        if room is None:
            return False
        enumerator = self._enumerators[name]
        if not begun:
            batch = enumerator.next(room)
        elif name in self._growers:
            batch = cast(Growing, enumerator).more(room)
        else:
            return False
        with self._guard:
            if self._growing is not asked:
                # It was taken meanwhile: that one is full, not the one after it.
                batch = replace(batch, full=False)
            known = name in self._growing.shares
            fuller = known and self._growing.shares[name].full != batch.full
            self._growing.add(name, batch)
            self._positions[name] = batch.position
            if batch.ended:
                self._ended.add(name)
            if batch.partitions is not None:
                self._partitions[name] = batch.partitions
            return bool(batch.slices) or batch.ended or fuller

    def _room(self, name: str) -> Limit | None:
        """What a source may add to the offer; None for nothing. Each has its turn in every offer.

        Sources that were not asked yet share what is left, so that the first does not take it all.
        """
        growing, limit = self._growing, self._limit
        if name in self._ended or name in self._paused or growing.closed:
            return None
        share = growing.shares.get(name)
        if share is not None and share.full:
            return None
        rows = None if limit.rows is None else limit.rows - growing.rows
        size = None if limit.bytes is None else limit.bytes - growing.bytes
        spent = (rows is not None and rows <= 0) or (size is not None and size <= 0)
        if spent and share is not None and share.slices:
            return None
        waiting = len(set(self._sources) - growing.asked - self._ended - self._paused) or 1
        if name in growing.asked:
            waiting = 1
        return Limit(
            None if rows is None else max(1, rows // waiting),
            None if size is None else max(1, size // waiting),
        )

    def _told(self) -> Offer:
        growing, limit = self._growing, self._limit
        rows, size = growing.rows, growing.bytes
        ended = self._ended >= set(self._sources)
        full = limit.rows is not None and rows >= limit.rows
        full |= limit.bytes is not None and size >= limit.bytes
        return Offer(
            step=self._step + (1 if self._taken is None else 2),
            rows=rows,
            bytes=size,
            by_source={n: s.rows for n, s in growing.shares.items() if s.rows},
            full=full or growing.closed or (rows > 0 and self._no_more()),
            ended=ended,
            partitions=dict(self._partitions),
        )

    def _no_more(self) -> bool:
        """Whether no source can add anything to this offer."""
        for name in self._sources:
            share = self._growing.shares.get(name)
            if name in self._ended or name in self._paused:
                continue
            if share is None or not share.slices:
                return False
            if not share.full and name in self._enumerators and name in self._growers:
                return False
        return True
