"""Who may write to a pipeline's journal: one leader at a time, and what keeps the others out.

The entry ``leader/<n>`` says who it is. The lease is there before it.

Guarantees
    Numbers only grow. A leader writes by way of its lease, and its successor fences all lower
    leases before it reads the journal. So from the moment that ``lead`` returns, no lower leader
    creates or trims any entry, whatever it was doing: it may have been stopped for hours in the
    middle of a call, and each of its entries is either there to be read, or never. The old one is
    told ``Fenced``, with the name of the new one. A leader that has died does not stand in
    anybody's way: nobody holds its lease.

Non-guarantees
    Whether a leader lives is as sure as its directory makes it, see ``file_directory``. A living
    one that is taken for a dead one is fenced, as by a take-over, and nothing is lost.

Failure and recovery
    ``DirectoryInUse`` names the leader that lives. A file system without locks is
    ``StoreUnavailable``: nobody leads on it. A kill at any point leaves at most a lease without a
    leader, which the next leader ends.
"""

from __future__ import annotations

import contextlib
import datetime
import secrets
import time

import msgspec

from anabranch.errors import CorruptEntry, DirectoryInUse, Fenced, StoreUnavailable
from anabranch.journal.entry_names import LeaderName
from anabranch.journal.journal import Journal, Won
from anabranch.journal.port import JournalDirectory, Lease
from anabranch.records.leader import MEMBERS, Leader, Member, decode_leader

#: For how long another process that is just becoming the leader is waited for.
PATIENCE_SECONDS = 5.0


class Leadership:
    """The leadership of one pipeline, as one process has it or not."""

    def __init__(self, directory: JournalDirectory) -> None:
        """``directory`` is the journal's. Nothing is done yet."""
        self._directory = directory
        self._lease: Lease | None = None
        #: who takes part, by the entry of this leader
        self.members: tuple[Member, ...] = MEMBERS

    @property
    def journal(self) -> Journal:
        """The journal, written to in the name of this leader."""
        return Journal(self._directory, self)

    @property
    def number(self) -> int | None:
        """The number under which this process leads or led; None before."""
        return None if self._lease is None else self._lease.number

    def lease(self) -> Lease:
        """The lease by which this leader writes; ``Fenced`` if it never led."""
        if self._lease is None:
            raise self._not_leading()
        return self._lease

    def lead(self, take_over: bool, host: str, pid: int, clock_ns: int, address: str = "") -> int:
        """Become the leader, and give the number; ``DirectoryInUse`` if another one lives.

        With ``take_over`` the other one is fenced instead.
        """
        if self._lease is not None and self._lease.held:
            raise RuntimeError("this process leads already")
        while True:
            self._lease = lease = self._claimed(take_over)
            try:
                last = self._leader(self._newest())
                # Names and indices of those that take part stay.
                members = MEMBERS if last is None else last.members
                leader = Leader(lease.number, host, pid, clock_ns, address, members)
                leads = self._established(lease, leader)
            except BaseException:
                self.release()
                raise
            if leads:
                return lease.number
            self.release()
            newest = self._newest()
            if take_over and self._directory.is_held(newest):
                raise self._in_use(newest, "has just taken over this pipeline")

    def _established(self, lease: Lease, leader: Leader) -> bool:
        """Whether this process leads now; False if another one was faster."""
        self.members = leader.members
        try:
            name = LeaderName(leader.number)
            outcome = self.journal.create(name, msgspec.json.encode(leader), secrets.token_hex(16))
        except Fenced:
            return False
        if outcome != Won():
            return False
        lease.fence()
        # The one before stays, so that a listing that runs meanwhile sees one in any case.
        for old in self.journal.leaders()[:-2]:
            self._directory.remove(str(old))
        # A higher one that did not find this one's lease has its entry in place by now.
        return self._newest() == leader.number

    def check_free(self) -> int:
        """The number of the last leader; ``DirectoryInUse`` if it lives."""
        newest = self._last()
        if self._directory.is_held(newest):
            raise self._in_use(newest, "runs this pipeline")
        return newest

    def check(self) -> None:
        """Raise ``Fenced`` if this process does not lead any more."""
        lease = self.lease()
        if lease.stands():
            return
        newest = self._newest()
        if newest > lease.number:
            leader = self._leader(newest)
            raise Fenced(
                f"Another coordinator has taken over: {_described(leader, newest)}",
                where=self._directory.where(),
                do="End this one; the other goes on with everything that was committed.",
            )
        if not lease.held:
            raise self._not_leading()
        raise StoreUnavailable(
            f"The lease of leader {lease.number} is gone, but there is no newer leader",
            where=lease.where,
            do="Somebody has removed it, or its disk is not mounted. Run the pipeline again; "
            "nothing that was committed is lost.",
        )

    def release(self) -> None:
        """Let go: the next one need not wait, nor take over."""
        if self._lease is not None:
            self._lease.release()

    def abandon(self) -> None:
        """Let go as a process does that is killed: its lease is left for the next one to end."""
        if self._lease is not None:
            self._lease.abandon()

    def _claimed(self, take_over: bool) -> Lease:
        """The lease of the number to lead under."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        tried = 0
        while True:
            newest = self._last() if take_over else self.check_free()
            number = max(newest, tried) + 1
            lease = self._directory.claim(number)
            if lease is not None:
                return lease
            # Another process is about to lead under this number.
            if time.monotonic() > deadline:
                raise self._in_use(number, "is about to run this pipeline")
            if take_over:
                tried = number
            time.sleep(0.02)

    def _last(self) -> int:
        """The highest number that is in use or was."""
        # A lease stands before its entry: the one below the highest had its entry once, and where
        # that was removed, its number is not used again.
        return max(self._newest(), *(lease - 1 for lease in self._directory.leases()), 0)

    def _newest(self) -> int:
        return self.journal.newest_leader()

    def _leader(self, number: int) -> Leader | None:
        with contextlib.suppress(CorruptEntry):
            entry = Journal(self._directory).find(LeaderName(number))
            return None if entry is None else decode_leader(entry.body)
        return None

    def _not_leading(self) -> Fenced:
        return Fenced(
            "This process does not lead the pipeline",
            where=self._directory.where(),
            do="Run the pipeline again.",
        )

    def _in_use(self, number: int, what: str) -> DirectoryInUse:
        leader = self._leader(number)
        return DirectoryInUse(
            f"{_described(leader, number)} {what}",
            # The journal is in the pipeline's directory, by which people know it.
            where=self._directory.where().rpartition("/")[0],
            do="Shut it down first, use another directory, or take over.",
        )


def replaced_by(directory: JournalDirectory, number: int) -> int | None:
    """The leader that has replaced this one; None if none has. For whoever acts in its name.

    A leader is replaced when its lease was ended, see above. Costs one listing as long as it
    leads.
    """
    if number in directory.leases():
        return None
    newest = Journal(directory).newest_leader()
    return newest if newest > number else None


def check_leads(directory: JournalDirectory, number: int) -> None:
    """Raise ``Fenced`` if another leader has replaced this one, see ``replaced_by``."""
    newest = replaced_by(directory, number)
    if newest is not None:
        raise Fenced(
            f"Leader {number} gives orders, and leader {newest} has taken over",
            where=directory.where(),
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
