"""Who may write to a pipeline's journal: one leader at a time, and what keeps the others out.

Operations
    ``lead`` makes this process the leader, if no other one lives or it is to be taken over;
    ``journal`` creates and trims entries in its name; ``check`` says whether it still leads;
    ``release`` ends it.

Guarantees
    Numbers only grow. From the moment that ``lead`` returns, no lower leader creates or trims any
    entry, whatever it was doing: it may have been stopped for hours in the middle of a call. A
    leader writes entries aside in a directory of its own and links them from there; its successor
    removes that directory before it reads the journal, so each entry of the old leader is either
    there to be read, or never. The old one is told ``Fenced``, with the name of the new one. A
    leader that has died, however, does not stand in anybody's way: its lock died with it.

Non-guarantees
    Whether a leader lives is known by ``flock``. On a file system that does not pass locks on
    between hosts, and where a person removes the lock file, a living leader is taken for a dead
    one: it is fenced then, as by a take-over, and nothing is lost.

Failure and recovery
    ``DirectoryInUse`` names the leader that lives. A file system without locks is
    ``StoreUnavailable``: nobody leads on it. A kill at any point leaves at most directories
    and lock files without a leader, which the next leader removes.

On disk, ``leader/<n>`` is the entry that says who it is, ``leader/<n>.lock`` is locked as long as
it lives, and ``leader/aside-<n>-…`` is its directory. The lock is there before the entry.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import secrets
import time
import weakref
from pathlib import Path

from anabranch.errors import CorruptEntry, DirectoryInUse, Fenced, StoreUnavailable
from anabranch.journal.entry_names import LeaderName
from anabranch.journal.journal import Journal, Won
from anabranch.records.entries import encode
from anabranch.records.leader import MEMBERS, Leader, Member, decode_leader
from anabranch.store.disk import disk
from anabranch.store.files import (
    ensure_directory,
    list_names,
    remove_directory,
    remove_file,
    store_errors,
    sync_directory,
)
from anabranch.store.lock import try_lock

#: For how long another process that is just becoming the leader is waited for.
PATIENCE_SECONDS = 5.0

_ASIDE = re.compile(r"aside-(\d{1,9})-[0-9a-f]+")
_LOCK = re.compile(r"(\d{1,9})\.lock")
_REMOVED = "removed-"


class Leadership:
    """The leadership of one pipeline, as one process has it or not.

    A child that is forked does not have it, and its parent's does not last longer by it.
    """

    def __init__(self, directory: Path) -> None:
        """``directory`` is the journal's. Nothing is done yet."""
        self._directory = directory
        self._leaders = directory / LeaderName.kind
        self._number: int | None = None
        #: who takes part, by the entry of this leader
        self.members: tuple[Member, ...] = MEMBERS
        self._handle: int | None = None
        self._own, self._aside = "aside-none", self._leaders / "aside-none"
        _all.add(self)

    @property
    def journal(self) -> Journal:
        """The journal, written to in the name of this leader."""
        return Journal(self._directory, self)

    @property
    def number(self) -> int | None:
        """The number under which this process leads or led; None before."""
        return self._number

    @property
    def aside(self) -> Path:
        """Where this leader writes its entries before they get their names."""
        return self._aside

    def lead(self, take_over: bool, host: str, pid: int, clock_ns: int, address: str = "") -> int:
        """Become the leader, and give the number; ``DirectoryInUse`` if another one lives.

        With ``take_over`` the other one is fenced instead.
        """
        if self._handle is not None:
            raise RuntimeError("this process leads already")
        ensure_directory(self._leaders)
        while True:
            number = self._locked_number(take_over)
            try:
                members = self._known_members()
                leads = self._established(Leader(number, host, pid, clock_ns, address, members))
            except BaseException:
                self.release()
                raise
            if leads:
                Journal(self._directory).prepare()
                return number
            self.release()
            newest = self._newest()
            if take_over and self._lives(newest):
                raise self._in_use(newest, "has just taken over this pipeline")

    def _known_members(self) -> tuple[Member, ...]:
        """Who takes part by the entry of the last leader: names and indices stay."""
        leader = self._leader(self._newest())
        return MEMBERS if leader is None else leader.members

    def _established(self, leader: Leader) -> bool:
        """Whether this process leads now; False if another one was faster."""
        self._number, self.members = leader.number, leader.members
        # Nobody makes this directory a second time: a leader that has lost its own has lost it
        # for good, even when another process comes to use the same number for a moment.
        self._own = f"aside-{leader.number}-{secrets.token_hex(8)}"
        self._aside = self._leaders / self._own
        with store_errors(self.aside, "create the directory"):
            disk().mkdir(self.aside)
        try:
            outcome = self.journal.create(
                LeaderName(leader.number), encode(leader), secrets.token_hex(16)
            )
        except Fenced:
            return False
        if outcome != Won():
            return False
        self._remove_lower(leader.number)
        # A higher one that did not find this one's directory has its entry in place by now.
        return self._newest() == leader.number

    def check(self) -> None:
        """Raise ``Fenced`` if this process does not lead any more."""
        if self._handle is not None and self.aside.is_dir():
            return
        newest = self._newest()
        if self._number is not None and newest > self._number:
            leader = self._leader(newest)
            raise Fenced(
                f"Another coordinator has taken over: {_described(leader, newest)}",
                where=str(self._directory),
                do="End this one; the other goes on with everything that was committed.",
            )
        if self._handle is None:
            raise Fenced(
                "This process does not lead the pipeline",
                where=str(self._directory),
                do="Run the pipeline again.",
            )
        raise StoreUnavailable(
            f"The directory of leader {self._number} is gone, but there is no newer leader",
            where=str(self.aside),
            do="Somebody has removed it, or its disk is not mounted. Run the pipeline again; "
            "nothing that was committed is lost.",
        )

    def release(self) -> None:
        """Let go: the next one need not wait, nor take over."""
        if self._handle is None:
            return
        lock = self._lock(self._number)
        try:
            remove_directory(self.aside, self._removed())
            if _is_open_at(self._handle, lock):
                remove_file(lock)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the lock and leave everything else, as a process does that is killed."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _locked_number(self, take_over: bool) -> int:
        """The number to lead under, whose lock is held from now on."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        tried = 0
        while True:
            newest = self._newest()
            if not take_over and self._lives(newest):
                raise self._in_use(newest, "runs this pipeline")
            number = max(newest, tried) + 1
            if self._try_lock(number):
                return number
            # Another process is about to lead under this number.
            if time.monotonic() > deadline:
                raise self._in_use(number, "is about to run this pipeline")
            if take_over:
                tried = number
            time.sleep(0.02)

    def _try_lock(self, number: int) -> bool:
        path = self._lock(number)
        with store_errors(path, "open"):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        mine = False
        try:
            # A leader may have removed the file before we had the lock.
            mine = try_lock(handle, path) and _is_open_at(handle, path)
        finally:
            if not mine:
                os.close(handle)
        self._handle = handle if mine else None
        return mine

    def _lives(self, number: int) -> bool:
        path = self._lock(number)
        with store_errors(path, "open"):
            try:
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        try:
            # Shared, so that two that look at the same time do not take each other for it.
            return not try_lock(handle, path, shared=True)
        finally:
            os.close(handle)

    def _remove_lower(self, number: int) -> None:
        """Fence all lower leaders, then clear what they left."""
        names = list_names(self._leaders)
        for name in names:
            found = _ASIDE.fullmatch(name)
            # Of the same number there may be one of a candidate that never came to lead.
            if found and int(found[1]) <= number and name != self._own:
                remove_directory(self._leaders / name, self._removed())
        sync_directory(self._leaders)
        for name in names:
            found = _LOCK.fullmatch(name)
            if found and int(found[1]) < number:
                remove_file(self._leaders / name)
            elif name.startswith(_REMOVED):
                _clear(self._leaders / name)
        # The one before stays, so that a listing that runs meanwhile sees one in any case.
        for old in self.journal.leaders()[:-2]:
            remove_file(self._leaders / str(old.number))

    def _newest(self) -> int:
        return max((name.number for name in Journal(self._directory).leaders()), default=0)

    def _leader(self, number: int) -> Leader | None:
        with contextlib.suppress(CorruptEntry):
            entry = Journal(self._directory).find(LeaderName(number))
            return None if entry is None else decode_leader(entry.body)
        return None

    def _in_use(self, number: int, what: str) -> DirectoryInUse:
        leader = self._leader(number)
        return DirectoryInUse(
            f"{_described(leader, number)} {what}",
            where=str(self._directory.parent),
            do="Shut it down first, use another directory, or take over.",
        )

    def _lock(self, number: int | None) -> Path:
        return self._leaders / f"{number}.lock"

    def _removed(self) -> Path:
        return self._leaders / f"{_REMOVED}{secrets.token_hex(8)}"


def replaced_by(directory: Path, number: int) -> int | None:
    """The leader that has replaced this one; None if none has. For whoever acts in its name.

    ``directory`` is the journal's. A leader is replaced when its directory is gone, see above.
    Costs one listing as long as it leads.
    """
    names = list_names(directory / LeaderName.kind)
    asides = (_ASIDE.fullmatch(name) for name in names)
    if any(found is not None and int(found[1]) == number for found in asides):
        return None
    newest = max((name.number for name in Journal(directory).leaders()), default=0)
    return newest if newest > number else None


def check_leads(directory: Path, number: int) -> None:
    """Raise ``Fenced`` if another leader has replaced this one, see ``replaced_by``."""
    newest = replaced_by(directory, number)
    if newest is not None:
        raise Fenced(
            f"Leader {number} gives orders, and leader {newest} has taken over",
            where=str(directory),
            do="End this coordinator: nothing of it counts any more.",
        )


def _described(leader: Leader | None, number: int) -> str:
    if leader is None:
        return f"Leader {number}"
    since = datetime.datetime.fromtimestamp(leader.since_ns // 10**9, datetime.UTC)
    at = f" at {leader.address}" if leader.address else ""
    return (
        f"Process {leader.pid} on {leader.host}{at} (leader {number} since "
        f"{since:%Y-%m-%d %H:%M:%S} UTC)"
    )


def _is_open_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _clear(directory: Path) -> None:
    for name in list_names(directory):
        remove_file(directory / name)
    with contextlib.suppress(OSError):
        disk().rmdir(directory)


_all: weakref.WeakSet[Leadership] = weakref.WeakSet()


def _forget_all() -> None:
    for leadership in _all:
        leadership.abandon()


# The lock is the open file's, which a fork shares: the child must not hold it after its parent.
os.register_at_fork(after_in_child=_forget_all)
