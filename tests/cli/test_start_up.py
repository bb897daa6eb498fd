"""What a command imports: only what it needs, so that it starts at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.http.address import Address, write_address
from anabranch.http.app import Application
from anabranch.http.server import Server
from tests.http.little import Little

# Each takes up to a second to import. (Typer itself needs rich and pydantic.)
SLOW = {
    *("pyspark", "py4j", "pyarrow", "numpy", "pandas", "psutil", "cloudpickle"),
    *("fastapi", "starlette", "uvicorn", "prometheus_client", "asyncio"),
}
IMPORTED = """
import json, sys
sys.argv = ["anabranch", *{arguments!r}]
from anabranch.cli.app import main
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code or 0, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """The top-level packages that a command of the shell has imported when it ends."""
    program = [sys.executable, "-c", IMPORTED.format(arguments=arguments)]
    ran = subprocess.run(program, capture_output=True, text=True, check=True, timeout=120)
    code, modules = json.loads(ran.stderr.splitlines()[-1])
    assert code == 0, ran
    assert ran.stdout
    return {name.partition(".")[0] for name in modules}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """The directory of a pipeline that is served."""
    server = Server(Application(Little().begin(), None), "127.0.0.1", 0, None).start()
    write_address(tmp_path, Address(server.address, 1, 1, None))
    yield tmp_path
    server.stop()


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("run", "--help"), ("state", "--help")]
)
def test_help_imports_nothing_slow(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) & SLOW == set()


@pytest.mark.parametrize("command", ["status", "checkpoints", "pause", "start"])
def test_a_command_for_a_running_pipeline_imports_nothing_slow(
    directory: Path, command: str
) -> None:
    assert imported(command, "--directory", str(directory)) & SLOW == set()


def test_the_package_imports_nothing_slow_until_a_name_is_used() -> None:
    program = (
        "import sys, anabranch as ab; before = set(sys.modules); ab.FileSource; "
        "print('pyarrow' in before, 'numpy' in before, 'pyarrow' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.split() == ["False", "False", "True"]


def test_every_public_name_is_found_and_no_other() -> None:
    assert set(ab.__all__) <= set(dir(ab))
    assert {name for name in ab.__all__ if getattr(ab, name, None) is None} == set()
    with pytest.raises(AttributeError, match="no attribute 'Datafow'"):
        getattr(ab, "Datafow")  # noqa: B009  (mypy would see it)


def test_the_module_of_that_name_does_not_hide_run() -> None:
    module = import_module("anabranch.run")
    assert ab.run is module.run
