"""One leader at a time, with real processes that are stopped, continued and killed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from anabranch.errors import DirectoryInUse, Fenced, StoreUnavailable
from anabranch.journal import leadership as module
from anabranch.journal.entry_names import CommitName, LeaderName, PlanName
from anabranch.journal.file_directory import FileDirectory, FileLease
from anabranch.journal.journal import Journal, Taken, Won
from anabranch.journal.leadership import Leadership, check_leads
from anabranch.records.leader import Leader, decode_leader
from tests.journal import leader_process

CLOCK_NS = 1_700_000_000_000_000_000


class Process:
    """A process that runs ``leader_process``."""

    def __init__(self, journal: Path) -> None:
        program = [sys.executable, leader_process.__file__, str(journal)]
        self.popen = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def tell(self, command: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(command + "\n")

    def heard(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, "the process has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: str) -> dict[str, Any]:
        self.tell(command)
        return self.heard()

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_until_stopped()

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


Start: TypeAlias = Callable[[], Process]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    made: list[Process] = []

    def one() -> Process:
        made.append(Process(place))
        return made[-1]

    yield one
    for process in made:
        process.kill()


def lead(place: Path, *, take_over: bool = False, pid: int = 77) -> Leadership:
    found = Leadership(FileDirectory(place))
    found.lead(take_over, "there", pid, CLOCK_NS, "there:8080")
    return found


def aside(leader: Leadership) -> Path:
    """Where a leader writes its entries before they get their names."""
    lease = leader.lease()
    assert isinstance(lease, FileLease)
    return lease.aside


def names(place: Path) -> list[str]:
    return sorted(path.name.rsplit("-", 1)[0] for path in (place / "leader").iterdir())


# ---------------------------------------------------------------------------------- one process


def refuse_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let every lock fail with this error of the operating system."""

    def refuse(handle: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)


@pytest.mark.parametrize("take_over", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int, take_over: bool
) -> None:
    refuse_locks(monkeypatch, number)
    with pytest.raises(StoreUnavailable, match="has no locks") as caught:
        lead(place, take_over=take_over)
    assert caught.value.where is not None
    assert "1.lock" in caught.value.where
    assert "Move the directory to a local disk" in (caught.value.do or "")
    assert names(place) == ["1.lock"]


@pytest.mark.parametrize("number", [errno.EWOULDBLOCK, errno.EACCES])
def test_a_take_over_that_gets_no_lock_ends(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    refuse_locks(monkeypatch, number)
    with pytest.raises(DirectoryInUse, match="is about to run this pipeline"):
        lead(place, take_over=True)


def test_nobody_is_taken_for_a_leader_where_there_are_no_locks(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead(place).abandon()
    refuse_locks(monkeypatch, errno.ENOLCK)
    with pytest.raises(StoreUnavailable, match="has no locks"):
        lead(place)


def test_a_leader_says_who_it_is(place: Path) -> None:
    leader = lead(place)
    assert leader.number == 1
    entry = leader.journal.read(LeaderName(1))
    assert decode_leader(entry.body) == Leader(1, "there", 77, CLOCK_NS, "there:8080")
    assert names(place) == ["1", "1.lock", "aside-1"]
    leader.check()
    leader.release()
    assert names(place) == ["1"]


def test_a_second_one_is_refused_with_the_name_of_the_first(place: Path) -> None:
    first = lead(place)
    with pytest.raises(DirectoryInUse) as caught:
        lead(place, pid=78)
    assert str(caught.value) == (
        "[directory.in_use] Process 77 on there at there:8080 (leader 1 since 2023-11-14 22:13:20 "
        f"UTC) runs this pipeline ({place.parent}). Shut it down first, use another directory, or "
        "take over."
    )
    assert names(place) == ["1", "1.lock", "aside-1"]
    assert first.journal.create(CommitName(1), b"{}", "a") == Won()
    first.release()
    assert lead(place).number == 2


def test_whoever_is_taken_over_is_told_by_whom(place: Path) -> None:
    first = lead(place)
    second = lead(place, take_over=True, pid=78)
    assert second.number == 2
    for attempt in (
        first.check,
        lambda: first.journal.create(CommitName(1), b"{}", "a"),
        lambda: first.journal.trim(5),
    ):
        with pytest.raises(Fenced, match=r"Process 78 on there at there:8080 \(leader 2 since"):
            attempt()
    assert not (place / "commit").exists()
    first.release()
    second.check()
    assert second.journal.create(CommitName(1), b"{}", "b") == Won()


def test_who_acts_in_the_name_of_a_leader_learns_that_it_was_replaced(place: Path) -> None:
    check_leads(FileDirectory(place), 1)  # nobody has led yet: there is no directory
    first = lead(place)
    check_leads(FileDirectory(place), 1)
    second = lead(place, take_over=True)
    assert (first.number, second.number) == (1, 2)
    check_leads(FileDirectory(place), 2)
    with pytest.raises(Fenced, match="Leader 1 gives orders, and leader 2 has taken over"):
        check_leads(FileDirectory(place), 1)


def test_a_candidate_that_died_before_it_led_does_not_make_the_leader_a_stranger(
    place: Path,
) -> None:
    first = lead(place)
    (place / LeaderName.kind / "2").write_bytes(b"")
    check_leads(FileDirectory(place), 1)
    first.check()


def test_whoever_has_let_go_creates_nothing(place: Path) -> None:
    leader = lead(place)
    journal = leader.journal
    leader.release()
    leader.release()
    with pytest.raises(Fenced, match="does not lead"):
        journal.create(CommitName(1), b"{}", "a")
    with pytest.raises(Fenced):
        leader.check()
    assert leader.lead(False, "there", 77, CLOCK_NS) == 2
    assert journal.create(CommitName(1), b"{}", "a") == Won()


def test_who_leads_cannot_lead_again(place: Path) -> None:
    leader = lead(place)
    with pytest.raises(RuntimeError):
        leader.lead(True, "there", 77, CLOCK_NS)
    leader.check()


def test_a_directory_that_somebody_removed_is_not_taken_for_a_take_over(place: Path) -> None:
    leader = lead(place)
    aside(leader).rmdir()
    with pytest.raises(StoreUnavailable, match="there is no newer leader"):
        leader.journal.create(CommitName(1), b"{}", "a")


def test_a_leader_that_was_killed_is_succeeded_and_its_leftovers_go(place: Path) -> None:
    for _ in range(5):
        dead = lead(place)
        (aside(dead) / ".x.1.2.aside").write_bytes(b"half")
        (place / "leader" / "removed-0").mkdir(exist_ok=True)
        (place / "leader" / "removed-0" / "x").write_bytes(b"half")
        dead.abandon()
    assert lead(place).number == 6
    assert names(place) == ["5", "6", "6.lock", "aside-6"]


def test_a_damaged_entry_of_a_leader_is_no_obstacle(place: Path) -> None:
    first = lead(place)
    (place / "leader" / "1").write_bytes(b"torn")
    with pytest.raises(DirectoryInUse, match="Leader 1 runs this pipeline"):
        lead(place)
    first.abandon()
    assert lead(place).number == 2


def test_a_journal_without_a_fence_reads_what_a_leader_wrote(place: Path) -> None:
    leader = lead(place)
    leader.journal.create(PlanName(1, 0), b"{}", "a")
    leader.journal.create(CommitName(1), b"{}", "a")
    assert Journal(FileDirectory(place)).commits() == (CommitName(1),)
    assert leader.journal.trim(2) == (PlanName(1, 0), CommitName(1))
    assert list(aside(leader).iterdir()) == []
    assert Journal(FileDirectory(place)).commits() == ()


# -------------------------------------------------------------------------------- real processes


@pytest.mark.parametrize(
    "where",
    ["stop fsync 1", "stop link 1", "stop open 1", ""],
    ids=["before the bytes are synced", "before the link", "before the file", "between calls"],
)
def test_a_leader_that_is_stopped_and_continued_after_a_take_over_cannot_commit(
    place: Path, start: Start, where: str
) -> None:
    first = start()
    assert first.ask("lead") == {"led": 1}
    if where:
        first.ask(where)
        first.tell("commit 1")
        first.wait_until_stopped()
    else:
        first.stop()
        first.tell("commit 1")
    with pytest.raises(DirectoryInUse, match=f"Process {first.pid} on here"):
        lead(place)
    second = lead(place, take_over=True)
    assert second.number == 2
    assert second.journal.commits() == ()
    first.go_on()
    told = first.heard()
    assert told["code"] == "coordinator.fenced"
    assert "Process 77 on there" in told["text"]
    assert second.journal.commits() == ()
    assert second.journal.create(CommitName(1), b"second", "b") == Won()
    assert first.ask("commit 1")["code"] == "coordinator.fenced"
    assert first.ask("commit 2")["code"] == "coordinator.fenced"
    assert second.journal.read(CommitName(1)).body == b"second"
    assert names(place) == ["1", "2", "2.lock", "aside-2"]


def replaced_after_its_commit(place: Path, start: Start) -> tuple[Process, Leadership]:
    """A leader that was stopped when its commit had got its name, and the one that took over."""
    first = start()
    first.ask("lead")
    first.ask("stop-after link 2")  # before that it finds that there is no directory yet
    first.tell("commit 1")
    first.wait_until_stopped()
    return first, lead(place, take_over=True)


def test_a_commit_that_was_made_before_the_take_over_is_seen_by_it(
    place: Path, start: Start
) -> None:
    first, second = replaced_after_its_commit(place, start)
    assert second.journal.commits() == (CommitName(1),)
    outcome = second.journal.create(CommitName(1), b"second", "b")
    assert isinstance(outcome, Taken)
    assert outcome.entry.body == str(first.pid).encode()
    first.go_on()
    assert first.heard() == {"won": 1}
    assert first.ask("commit 2")["code"] == "coordinator.fenced"


def test_a_trim_that_a_take_over_interrupts_removes_nothing_more(place: Path, start: Start) -> None:
    first = start()
    first.ask("lead")
    for step in range(1, 6):
        first.ask(f"commit {step}")
    first.ask("stop rename 3")
    first.tell("trim 5")
    first.wait_until_stopped()
    second = lead(place, take_over=True)
    left = (CommitName(3), CommitName(4), CommitName(5))
    assert second.journal.commits() == left
    first.go_on()
    assert first.heard()["code"] == "coordinator.fenced"
    assert second.journal.commits() == left


def test_who_was_replaced_removes_no_entry_that_came_to_be_old_meanwhile(
    place: Path, start: Start
) -> None:
    first, second = replaced_after_its_commit(place, start)
    for step in range(2, 6):
        assert second.journal.create(CommitName(step), b"{}", str(step)) == Won()
    second.journal.trim(5, keep=[1])
    kept = (CommitName(1), CommitName(5))
    assert second.journal.commits() == kept
    first.go_on()
    assert first.heard().get("code") == "coordinator.fenced"
    assert second.journal.commits() == kept


@pytest.mark.parametrize("where", ["mkdir 1", "link 1", "rename 1"])
def test_a_candidate_that_is_killed_on_its_way_is_no_obstacle(
    place: Path, start: Start, where: str
) -> None:
    lead(place).abandon()
    first = start()
    first.ask(f"stop {where}")
    first.tell("lead")
    first.wait_until_stopped()
    first.kill()
    second = lead(place)
    number = 3 if where == "rename 1" else 2
    assert second.number == number
    assert second.journal.create(CommitName(1), b"{}", "b") == Won()
    assert names(place)[-2:] == [f"{number}.lock", f"aside-{number}"]


@pytest.mark.parametrize("where", ["mkdir 1", "link 1", "rename 1"])
def test_a_candidate_that_was_passed_by_gives_up(place: Path, start: Start, where: str) -> None:
    lead(place).abandon()
    first = start()
    first.ask(f"stop {where}")
    first.tell("lead take-over")
    first.wait_until_stopped()
    second = lead(place, take_over=True)
    assert second.number == 3
    first.go_on()
    told = first.heard()
    assert told["code"] == "directory.in_use"
    assert "Process 77 on there at there:8080 (leader 3" in told["text"]
    second.check()
    assert second.journal.create(CommitName(1), b"{}", "b") == Won()


def test_a_candidate_that_hangs_keeps_others_out_until_they_take_over(
    place: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.1)
    first = start()
    first.ask("stop mkdir 1")
    place.joinpath("leader").mkdir(parents=True)
    first.tell("lead")
    first.wait_until_stopped()
    with pytest.raises(DirectoryInUse, match="Leader 1 is about to run this pipeline"):
        lead(place)
    assert lead(place, take_over=True).number == 2
    first.go_on()
    assert first.heard()["code"] == "directory.in_use"


@pytest.mark.parametrize("how", ["lead", "lead take-over"])
def test_of_several_that_start_at_once_one_leads(place: Path, start: Start, how: str) -> None:
    processes = [start() for _ in range(4)]
    for process in processes:
        process.ask("nothing")
    for process in processes:
        process.tell(how)
    told = [process.heard() for process in processes]
    led = [answer["led"] for answer in told if "led" in answer]
    assert len(led) == 1 if how == "lead" else led
    assert all(answer["code"] == "directory.in_use" for answer in told if "led" not in answer)
    after = [process.ask("commit 1") for process in processes]
    assert [answer for answer in after if "won" in answer] == [{"won": 1}]
    winner = next(told for told, answer in zip(told, after, strict=True) if "won" in answer)
    assert winner["led"] == max(led)
    assert all(a["code"] == "coordinator.fenced" for a in after if "won" not in a)


def test_what_a_take_over_reads_is_all_there_ever_is(place: Path, start: Start) -> None:
    first = start()
    step = 1
    for _ in range(8):
        first.ask("lead")
        first.tell(f"commits {step}")
        while step not in {name.step for name in Journal(FileDirectory(place)).commits()}:
            time.sleep(0.001)
        second = lead(place, take_over=True)
        read = second.journal.commits()
        assert first.heard()["code"] == "coordinator.fenced"
        assert second.journal.commits() == read
        step = read[-1].step + 1
        second.release()
        first.ask("release")


def test_a_process_that_is_killed_is_succeeded_though_its_grandchild_lives(
    place: Path, start: Start
) -> None:
    first = start()
    first.ask("lead")
    grandchild = first.ask("fork")["grandchild"]
    try:
        first.kill()
        second = lead(place)
        assert second.number == 2
        os.kill(grandchild, 0)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_fork_does_not_end_the_leadership(place: Path, start: Start) -> None:
    first = start()
    first.ask("lead")
    grandchild = first.ask("fork")["grandchild"]
    os.kill(grandchild, signal.SIGKILL)
    with pytest.raises(DirectoryInUse):
        lead(place)
    assert first.ask("commit 1") == {"won": 1}


def test_without_its_lock_file_a_living_leader_is_fenced_by_the_next(
    place: Path, start: Start
) -> None:
    first = start()
    first.ask("lead")
    (place / "leader" / "1.lock").unlink()
    second = lead(place)
    assert second.number == 2
    assert first.ask("commit 1")["code"] == "coordinator.fenced"
    first.ask("release")
    second.check()
    assert second.journal.create(CommitName(1), b"{}", "b") == Won()
