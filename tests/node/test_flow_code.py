"""Programs by their names: what the hash covers, and what cannot be loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.errors import FlowNotFound
from anabranch.node.flow_code import code_of, load_flow, split_reference

FLOW = """
import anabranch as ab
import json
from prices import double
from parts import tax

flow = ab.Dataflow("orders")
other = 1
"""


@pytest.fixture(autouse=True)
def _same_modules() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    files = {
        "orders_flow.py": FLOW,
        "prices.py": "from deeper import factor\ndouble = 2\n",
        "deeper.py": "factor = 2\n",
        "parts/__init__.py": "",
        "parts/tax.py": "from . import rates\nfrom .rates import vat\n",
        "parts/rates.py": "vat = 7\n",
        "unused.py": "nobody = 'imports this'\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_flow_is_found_by_its_name(program: Path) -> None:
    assert load_flow(f"{program}/orders_flow.py:flow").graph().name == "orders"
    assert sys.path[0] == str(program)
    assert sys.modules["orders_flow"].__file__ == str(program / "orders_flow.py")


@pytest.mark.parametrize(
    "changed", ["orders_flow.py", "prices.py", "deeper.py", "parts/tax.py", "parts/rates.py"]
)
def test_the_hash_covers_what_is_imported(program: Path, changed: str) -> None:
    reference = f"{program}/orders_flow.py:flow"
    before = code_of(reference)
    file = program / changed
    file.write_text(file.read_text() + "# changed\n")
    assert code_of(reference) != before


def test_the_hash_covers_nothing_else_and_knows_no_place(program: Path, tmp_path: Path) -> None:
    before = code_of(f"{program}/orders_flow.py:flow")
    (program / "unused.py").write_text("another = 1\n")
    assert code_of(f"{program}/orders_flow.py:flow") == before
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in [*program.glob("*.py"), *program.glob("parts/*.py")]:
        target = moved / file.relative_to(program)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
    assert code_of(f"{moved}/orders_flow.py:flow") == before
    assert code_of(f"{program}/orders_flow.py:other") != before


def test_the_hash_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("raise SystemExit('it ran')\n")
    assert len(code_of(f"{tmp_path}/loud.py:flow")) == 32


@pytest.mark.parametrize(
    ("name", "text", "reference", "says"),
    [
        ("a_flow.py", "", "a_flow.py", "does not name a dataflow"),
        ("a_flow.py", "", "a_flow.txt:flow", "does not name a dataflow"),
        ("a_flow.py", "", "a_flow.py:1x", "does not name a dataflow"),
        ("a_flow.py", "", "gone.py:flow", "no such file"),
        ("a_flow.py", "flow = 1", "a_flow.py:flow", "has no dataflow 'flow'"),
        ("a_flow.py", "1 / 0", "a_flow.py:flow", "ZeroDivisionError"),
        ("a_flow.py", "def", "a_flow.py:flow", "SyntaxError"),
        ("json.py", "", "json.py:flow", "Another module is called 'json'"),
        ("a-flow.py", "", "a-flow.py:flow", "its name is not a word"),
    ],
)
def test_what_cannot_be_loaded_is_explained(
    tmp_path: Path, name: str, text: str, reference: str, says: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FlowNotFound) as caught:
        load_flow(f"{tmp_path}/{reference}")
    assert says in str(caught.value)


def test_a_file_that_cannot_be_parsed_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "a_flow.py").write_text("def")
    with pytest.raises(FlowNotFound):
        code_of(f"{tmp_path}/a_flow.py:flow")
    with pytest.raises(FlowNotFound):
        code_of(f"{tmp_path}/gone.py:flow")


def test_a_reference_is_a_file_and_a_word() -> None:
    assert split_reference("/x/y.py:flow") == (Path("/x/y.py"), "flow")
