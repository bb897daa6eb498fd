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
from dataclasses import dataclass, field, replace
from pathlib import Path

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

TELL_SECONDS = 0.25
"""How often it is told that a source was asked again and had nothing, where that matters."""


def open_plainly(name: str, source: Source, position: bytes | None, log: SourceLog) -> Enumerator:
    """Open a source that needs nothing but its description."""
    return source.open(position, log)


@dataclass(slots=True, eq=False)
class _Source:
    """A source of the dataflow. ``asking`` is held while its enumerator is called."""

    name: str
    source: Source
    #: up to where it has handed out
    position: bytes | None
    asking: threading.RLock = field(default_factory=threading.RLock)
    enumerator: Enumerator | None = None
    #: the enumerator, if it can: to find out whether it has a protocol's methods takes long
    grower: Growing | None = None
    attended: Attended | None = None
    #: the commit that it was told of
    acknowledged: tuple[Input, ...] | None = None
    failure: Failure | None = None
    retry_at: float = 0.0
    ended: bool = False
    partitions: int | None = None
    #: when it was last asked and handed out all that it had; None if it may have more
    asked_at: float | None = None
    #: the last such moment that the coordinator was told of
    told_at: float = 0.0


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
        check_plane: Callable[[], None] = lambda: None,
        idling: Iterable[str] = (),
    ) -> None:
        """Open every source after ``pending``, else after ``read``, else at its beginning.

        ``step`` is the last committed one; ``pending`` is the input of the step after it, where
        that is planned already. Of the sources named in ``idling`` it is told when they were asked.
        """
        positions = {g.source: bytes(g.position) for g in (*read, *pending)}
        self._sources = {
            node.name: _Source(node.name, node.source, positions.get(node.name))
            for node in physical.sources()
        }
        self._log = StoreLog(store)
        self._open_source = open_source
        self._clock = clock
        self._check_plane = check_plane
        self._guard = threading.Lock()
        self._paused: frozenset[str] = frozenset()
        self._step = step
        self._limit = limit
        self._idling = frozenset(idling)
        self._taken: tuple[Input, ...] | None = tuple(pending) or None
        #: when the sources of what was taken had last been asked
        self._taken_asked: dict[str, float] = {}
        self._taken_offer: Offer | None = None
        self._growing = Gathered()
        self._committed: tuple[Input, ...] = tuple(read)
        #: whether the sources have let go: nobody knows any more what they need
        self.closed = False
        try:
            for each in self._sources.values():
                self._open(each)
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise

    @property
    def failure(self) -> Failure | None:
        """Why a source gives nothing now."""
        with self._guard:
            failures = (each.failure for each in self._sources.values())
            return next((failure for failure in failures if failure is not None), None)

    def offer(self, *, running: bool) -> Offer:
        """What waits: for the next step, or, while that is ``running``, for the one after it.

        Whoever took an offer without a row had a reason of its own for the step, and may be gone:
        to its successor what waits behind it is told, or it would never take it again.
        """
        with self._guard:
            if self._taken_offer is None or running:
                return self._told()
            if self._taken_offer.rows:
                return msgspec.structs.replace(self._taken_offer, asked={})
            return msgspec.structs.replace(self._told(), step=self._step + 1)

    def settled(self, step: int) -> tuple[Input, ...] | None:
        """The input that a step will have, once nothing can be added to its offer; else None."""
        with self._guard:
            offer = self._told()
            return self._growing.inputs() if offer.full and offer.step == step else None

    def close_offer(self, step: int, inputs: tuple[Input, ...]) -> None:
        """Let an offer stay as it is: somebody has prepared for it, if it is still this one."""
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
                self._taken_asked = self._asked()
                self._taken = tuple(
                    msgspec.structs.replace(given, files=self._files_of(given))
                    for given in self._growing.inputs()
                )
                self._growing = Gathered()
            return tuple(map(self._with_asked, self._taken))

    def commit(self, step: int, positions: tuple[Input, ...], limit: InputLimit) -> None:
        """The step that was taken is committed: what follows is for the next one."""
        with self._guard:
            self._step, self._limit = step, limit
            self._taken = self._taken_offer = None
            self._taken_asked = {}
            self._committed = positions

    def replayed(self, step: int, limit: InputLimit) -> None:
        """A step that was read long ago is done again: what waits, or is taken, waits on."""
        with self._guard:
            self._step, self._limit = step, limit

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
        for name in self._sources if names is None else names:
            each = self._sources[name]
            with each.asking:
                if self.closed or self._clock() < each.retry_at:
                    continue
                with self._watched(each):
                    if each.enumerator is None:
                        self._open(each)
                    self._acknowledge(each)
                    changed |= self._ask(each)
        return changed or self.failure != before

    def acknowledge(self) -> None:
        """Tell sources of the last commit where they were not told yet: they are about to close.

        One that fails is not tried again: whoever opens it next tells it.
        """
        for each in self._sources.values():
            with each.asking:
                if each.enumerator is not None:
                    with self._watched(each):
                        self._acknowledge(each)

    def files(self) -> frozenset[str]:
        """The files of the source log that are needed: by sources, offers and the last commit."""
        needed: set[str] = set()
        for each in self._sources.values():
            with each.asking:
                if each.enumerator is not None:
                    needed.update(f"{LOG_ROOM}/{name}" for name in each.enumerator.files())
        # After the sources were asked: what one hands out meanwhile is in the offer.
        with self._guard:
            inputs = (*self._committed, *(self._taken or ()), *self._growing.inputs())
        return frozenset(needed.union(*map(self._files_of, inputs)))

    def _files_of(self, given: Input) -> tuple[str, ...]:
        """The files in the store that a position needs."""
        each = self._sources.get(given.source)
        names = () if each is None else each.source.log_files(bytes(given.position))
        return tuple(sorted(f"{LOG_ROOM}/{name}" for name in names))

    def forget(self, kept: Sequence[Sequence[Input]]) -> None:
        """Let sources forget the input that no kept position needs; what fails is tried again.

        A source that some kept step has not read yet keeps everything.
        """
        for each in self._sources.values():
            own = [[g for g in inputs if g.source == each.name] for inputs in kept]
            with each.asking:
                if isinstance(each.enumerator, Forgetting) and all(own):
                    with contextlib.suppress(StoreError):
                        each.enumerator.forget([bytes(g.position) for found in own for g in found])

    def check(self, inputs: Sequence[Input]) -> None:
        """Raise if some input is not what it was when it was planned."""
        for given in inputs:
            self._sources[given.source].source.check(given.slices)

    def close(self) -> None:
        """Let the sources let go: every one is asked, whatever the others raise."""
        self.closed = True
        with contextlib.ExitStack() as closing:
            for each in self._sources.values():
                closing.callback(self._close, each)

    def _close(self, each: _Source) -> None:
        with each.asking:
            each.enumerator, attended = None, each.attended
            each.grower = each.attended = None
            if attended is not None:
                attended.close()

    def _open(self, each: _Source) -> None:
        opened = self._open_source(each.name, each.source, each.position, self._log)
        each.enumerator = opened
        each.grower = opened if isinstance(opened, Growing) else None
        each.attended = opened if isinstance(opened, Attended) else None

    @contextlib.contextmanager
    def _watched(self, each: _Source) -> Iterator[None]:
        """Keep why a source failed; it is opened again where it stood, after a while."""
        try:
            yield
        except Exception as error:
            self._check_plane()
            each.acknowledged = None
            with contextlib.suppress(Exception):
                self._close(each)
            with self._guard:
                each.failure = failure_of(error)
                each.asked_at = None
                each.retry_at = self._clock() + RETRY_SECONDS
        else:
            with self._guard:
                each.failure = None

    def _acknowledge(self, each: _Source) -> None:
        """Tell a source that wants to know what the last commit covers (R5), once."""
        with self._guard:
            committed = self._committed
        if each.attended is not None and each.acknowledged is not committed:
            for given in committed:
                if given.source == each.name:
                    each.attended.acknowledge(bytes(given.position))
        each.acknowledged = committed

    def _ask(self, each: _Source) -> bool:
        """Ask one source for what its share has room for."""
        with self._guard:
            asked = self._growing
            room = self._room(each)
            share = asked.shares.get(each.name)
            begun = share is not None and bool(share.slices)
        assert each.enumerator is not None, "a source is open when it is asked"
        if room is None or (begun and each.grower is None):
            return False
        asked_at = self._clock()
        batch = each.grower.more(room) if begun and each.grower else each.enumerator.next(room)
        with self._guard:
            each.asked_at = None if batch.full else asked_at
            if self._growing is not asked:
                # It was taken meanwhile: that one is full, not the one after it.
                batch = replace(batch, full=False)
            share = self._growing.shares.get(each.name)
            fuller = share is not None and share.full != batch.full
            self._growing.add(each.name, batch)
            each.position = batch.position
            each.ended |= batch.ended
            if batch.partitions is not None:
                each.partitions = batch.partitions
            return bool(batch.slices) or batch.ended or fuller or self._is_news(each)

    def _is_news(self, each: _Source) -> bool:
        """Whether to tell again that a source was asked and had nothing."""
        if each.name not in self._idling or each.asked_at is None:
            return False
        if each.asked_at < each.told_at + TELL_SECONDS:
            return False
        each.told_at = each.asked_at
        return True

    def _room(self, each: _Source) -> Limit | None:
        """What a source may add to the offer; None for nothing. Each has its turn in every offer.

        Sources that were not asked yet share what is left, so that the first does not take it all.
        """
        growing, limit = self._growing, self._limit
        share = growing.shares.get(each.name)
        if self._is_silent(each) or growing.closed or (share is not None and share.full):
            return None
        rows = None if limit.rows is None else limit.rows - growing.rows
        size = None if limit.bytes is None else limit.bytes - growing.bytes
        spent = (rows is not None and rows <= 0) or (size is not None and size <= 0)
        if spent and share is not None and share.slices:
            return None
        waiting = 1
        if share is None:
            others = (o for o in self._sources.values() if o.name not in growing.shares)
            waiting = sum(1 for other in others if not self._is_silent(other))
        return Limit(
            None if rows is None else max(1, rows // waiting),
            None if size is None else max(1, size // waiting),
        )

    def _is_silent(self, each: _Source) -> bool:
        """Whether nothing is asked of it: it has ended, or is paused."""
        return each.ended or each.name in self._paused

    def _told(self) -> Offer:
        growing, limit = self._growing, self._limit
        rows, size = growing.rows, growing.bytes
        sources = self._sources.values()
        full = limit.rows is not None and rows >= limit.rows
        full |= limit.bytes is not None and size >= limit.bytes
        return Offer(
            step=self._step + (1 if self._taken is None else 2),
            rows=rows,
            bytes=size,
            by_source={n: s.rows for n, s in growing.shares.items() if s.rows},
            full=full or growing.closed or (rows > 0 and self._no_more()),
            ended=all(each.ended for each in sources),
            partitions={s.name: s.partitions for s in sources if s.partitions is not None},
            ended_sources=tuple(each.name for each in sources if each.ended),
            asked={name: self._clock() - moment for name, moment in self._asked().items()},
        )

    def _asked(self) -> dict[str, float]:
        """When sources were last asked and handed out all that they had; a paused one is not."""
        return {
            name: self._sources[name].asked_at or 0.0
            for name in self._idling - self._paused
            if self._sources[name].asked_at is not None
        }

    def _with_asked(self, given: Input) -> Input:
        """The input with how long ago its source was asked: whoever takes it later hears more."""
        if given.source not in self._taken_asked:
            return given
        seconds = self._clock() - self._taken_asked[given.source]
        return msgspec.structs.replace(given, asked_seconds=seconds)

    def _no_more(self) -> bool:
        """Whether no source can add anything to this offer."""
        for each in self._sources.values():
            share = self._growing.shares.get(each.name)
            if self._is_silent(each):
                continue
            if share is None or not share.slices:
                return False
            if not share.full and each.grower is not None:
                return False
        return True
