"""Who may use a pipeline's directory: another user of the machine can do nothing to it.

The attacker is a process with another uid: permissions mean nothing to root.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.coordinator.driver.checkpoint_copy import copy_checkpoint
from anabranch.coordinator.settings import Settings
from anabranch.errors import DirectoryOpenToAll
from anabranch.http.address import Address, write_address
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.node.address import NodeAddress, write_node_address
from anabranch.run import serve
from anabranch.sinks.memory import MemorySink
from anabranch.spark import code as spark_code
from anabranch.store.access import open_directory
from anabranch.store.lock import DirectoryLock
from tests.node.engine import Engine
from tests.node.shop import make_program

PYTHON = os.path.realpath(sys.executable)
ATTACKER = 54321
GROUP = 54322

ATTACK = """
import fcntl, json, os, sys
held, done = [], {}
for path in json.loads(sys.stdin.readline()):
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            held.append(os.open(path, os.O_RDONLY))
            fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        done[path] = "reached"
    except BlockingIOError:
        done[path] = "reached"
    except OSError as error:
        done[path] = type(error).__name__
print(json.dumps(done), flush=True)
sys.stdin.readline()
"""

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


class Attacker:
    """A process of another user, which keeps what it can open locked until it is let go."""

    def __init__(self, paths: list[Path], *, groups: tuple[int, ...] = ()) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-I", "-S", "-c", ATTACK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            user=ATTACKER,
            group=ATTACKER,
            extra_groups=list(groups),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path) for path in paths]) + "\n")
        self._process.stdin.flush()
        self.found: dict[str, str] = json.loads(self._process.stdout.readline())

    @property
    def reached(self) -> set[str]:
        return {path for path, what in self.found.items() if what == "reached"}

    def end(self) -> None:
        self._process.communicate("\n", timeout=60)


@pytest.fixture
def attack() -> Iterator[Callable[..., Attacker]]:
    made: list[Attacker] = []

    def start(paths: list[Path], **how: tuple[int, ...]) -> Attacker:
        made.append(Attacker(paths, **how))
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that everybody can enter, unlike those of pytest."""
    before = os.umask(0o022)
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)
    os.umask(before)


class Living:
    """What a pipeline that runs has in its directory."""

    def __init__(self, directory: Path, out: Path) -> None:
        Engine(make_program(out, MemorySink()), directory).run()
        self._leader = Leadership(FileDirectory(directory / "journal"))
        self._leader.lead(False, "here", os.getpid(), 0)
        self._node = DirectoryLock(directory, "node.lock")
        self._node.acquire()
        write_address(directory, Address("http://127.0.0.1:1", 1, 1, "token"))
        write_node_address(directory, NodeAddress("127.0.0.1", 1, 1, "boot", "secret"))
        spark_code.save_program(directory, make_program(out, MemorySink()))

    def end(self) -> None:
        self._leader.release()
        self._node.release()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def every(directory: Path) -> list[Path]:
    return [directory, *sorted(directory.rglob("*"))]


def is_private(path: Path, directory: Path) -> bool:
    name = path.relative_to(directory).as_posix()
    return name.startswith(("journal/leader", "code")) or name in (
        "node.lock",
        "node.json",
        "coordinator.json",
    )


@root_only
def test_another_user_reaches_nothing_in_a_new_directory(
    outside: Path, attack: Callable[..., Attacker]
) -> None:
    directory = outside / "state"
    open_directory(directory)
    assert mode(directory) == 0o700
    living = Living(directory, outside)
    found = attack([*every(directory), *every(outside / "counts")])
    published = {str(path) for path in every(outside / "counts")}
    assert len(published) > 2
    assert found.reached == published, "readers of the output keep what they had"
    living.end()


@root_only
def test_another_user_cannot_keep_a_pipeline_down_in_a_directory_that_all_may_enter(
    outside: Path, attack: Callable[..., Attacker]
) -> None:
    directory = outside / "state"
    directory.mkdir(0o755)
    open_directory(directory)
    living = Living(directory, outside)
    found = attack(every(directory))
    private = {str(path) for path in every(directory) if is_private(path, directory)}
    assert len(private) >= 8
    assert not found.reached & private
    assert any("/run/" in path for path in found.reached), "the attack works where it may"
    living.end()
    Living(directory, outside).end()


def test_what_is_private_is_so_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_directory(directory := tmp_path / "state")
        living = Living(directory, tmp_path)
    finally:
        os.umask(before)
    for path in every(directory)[1:]:
        if is_private(path, directory):
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path
        else:
            assert mode(path) & 0o044 == 0o044, path
    living.end()


def test_what_an_earlier_version_left_open_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    Living(directory, tmp_path).end()
    for path in every(directory):
        path.chmod(0o755 if path.is_dir() else 0o644)
    directory.chmod(0o700)
    Living(directory, tmp_path).end()
    for path in every(directory):
        if is_private(path, directory) and not path.name.isdigit():
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert mode(directory / "run") == 0o755


@root_only
def test_executors_of_another_user_read_the_program_by_their_group(
    outside: Path, attack: Callable[..., Attacker]
) -> None:
    directory = outside / "state"
    directory.mkdir()
    os.chown(directory, -1, GROUP)
    directory.chmod(0o2770)
    open_directory(directory)
    assert mode(directory) == 0o2770
    living = Living(directory, outside)
    code = every(directory / "code")
    assert len(code) == 2
    found = attack(every(directory), groups=(GROUP,))
    assert {str(path) for path in code} <= found.reached
    leading = every(directory / "journal" / "leader")
    assert not found.reached & {str(path) for path in leading}
    assert attack(every(directory)).reached == set()
    living.end()


@root_only
def test_executors_of_another_user_write_runs_that_the_group_owns(outside: Path) -> None:
    """The modes and umasks that the documentation recommends."""
    directory = outside / "state"
    directory.mkdir()
    os.chown(directory, -1, GROUP)
    directory.chmod(0o2770)
    os.umask(0o007)
    living = Living(directory, outside)
    room = directory / "run" / "seen"
    script = "import os; os.umask(7); open('theirs', 'x'); os.mkdir('new')"
    subprocess.run(
        [PYTHON, "-I", "-S", "-c", f"import os; os.chdir({str(room)!r}); {script}"],
        cwd="/",
        check=True,
        user=ATTACKER,
        group=ATTACKER,
        extra_groups=[GROUP],
    )
    made = (room / "theirs").stat()
    assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (ATTACKER, GROUP, 0o660)
    assert stat.S_IMODE((room / "new").stat().st_mode) == 0o2770
    living.end()


@pytest.mark.parametrize("rights", [0o777, 0o1777, 0o707, 0o702])
def test_a_directory_that_all_may_write_to_is_refused(tmp_path: Path, rights: int) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(rights)
    with pytest.raises(DirectoryOpenToAll, match="Everybody may write") as raised:
        open_directory(directory)
    assert raised.value.where == str(directory)
    assert f"chmod o-w {directory}" in (raised.value.do or "")
    assert mode(directory) == rights
    assert list(directory.iterdir()) == []


def test_no_pipeline_starts_in_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(DirectoryOpenToAll):
        serve("no_such_module:flow", directory=tmp_path, settings=Settings())
    assert list(tmp_path.iterdir()) == []


class Trap:
    """Unpickled, it runs."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("opened", [".", "code", "code/trap"])
def test_nothing_is_unpickled_where_all_may_write(tmp_path: Path, opened: str) -> None:
    data = pickle.dumps(Trap(tmp_path / "sprung"))
    trap = hashlib.sha256(data).hexdigest()[:32]
    (tmp_path / "code").mkdir(0o700)
    (tmp_path / "code" / trap).write_bytes(data)
    path = tmp_path / opened.replace("trap", trap)
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(DirectoryOpenToAll):
        spark_code.load_program(tmp_path, trap)
    assert not (tmp_path / "sprung").exists()


def test_a_copy_is_as_private_as_a_pipeline(tmp_path: Path) -> None:
    state = tmp_path / "state"
    Engine(make_program(tmp_path, MemorySink()), state).run()
    copy_checkpoint(state, "shop", None, tmp_path / "copy")
    assert mode(tmp_path / "copy") == 0o700
