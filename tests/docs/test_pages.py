"""The programs of the README and of docs/ run, and print what the pages say they print.

The Python blocks of a page run in order, in one namespace and one new directory. A block of the
language ``output`` holds what the Python block before it prints. A block after a comment
``<!-- file: in/x.json -->`` is a file that must be there.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scripts.check_docs import Block, parse

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "operators").glob("*.md")),
]
FILE = re.compile(r"<!-- file: (\S+) -->")


@dataclass(frozen=True)
class Program:
    """A Python block of a page, with what it should print; None where the page does not say."""

    line: int
    text: str
    output: str | None


@dataclass(frozen=True)
class Page:
    """What a page asks for: files by name, and programs in order."""

    path: Path
    files: dict[str, str]
    programs: list[Program]


def read_page(path: Path) -> Page:
    document = parse(path)
    comments = {number: FILE.fullmatch(text.strip()) for number, text in document.prose}
    files: dict[str, str] = {}
    programs: list[Program] = []
    for block, following in zip_longest(document.blocks, document.blocks[1:]):
        named = comments.get(block.line - 1)
        if named is not None:
            files[named[1]] = block.text + "\n"
        elif block.language == "python":
            programs.append(Program(block.line, block.text, expected_output(following)))
    return Page(path, files, programs)


def expected_output(following: Block | None) -> str | None:
    return following.text if following is not None and following.language == "output" else None


def run_page(page: Page) -> Iterator[tuple[Program, str]]:
    """Run a page's programs in the current directory; gives each with what it printed."""
    for name, text in page.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for program in page.programs:
        # Blank lines before it, so that a traceback names the line of the page.
        code = compile("\n" * program.line + program.text, str(page.path), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        yield program, printed.getvalue().rstrip()


@pytest.mark.spark
@pytest.mark.parametrize(
    "path", [path for path in PAGES if read_page(path).programs], ids=lambda path: path.name
)
def test_programs_print_what_the_page_says(
    path: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = read_page(path)
    for program, printed in run_page(page):
        place = f"{path.name}:{program.line}"
        if program.output is not None:
            assert (place, printed) == (place, program.output)


def test_every_page_that_shows_output_has_a_program_for_it() -> None:
    for path in PAGES:
        shown = sum(block.language == "output" for block in parse(path).blocks)
        programs = read_page(path).programs
        assert shown == sum(program.output is not None for program in programs), path.name


def test_the_readme_has_a_program_and_its_input() -> None:
    page = read_page(ROOT / "README.md")
    assert [program.output is not None for program in page.programs] == [True]
    assert set(page.files) == {"in/monday.json", "in/tuesday.json"}


def test_the_readme_shows_the_files_of_the_example() -> None:
    page = read_page(ROOT / "README.md")
    _, _, program = (ROOT / "examples/orders.py").read_text(encoding="utf-8").partition("\n\n")
    assert page.programs[0].text.strip() == program.strip()
    for name, text in page.files.items():
        assert (ROOT / "examples" / name).read_text(encoding="utf-8") == text


def test_the_runner_finds_files_programs_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# T\n<!-- file: in/a.txt -->\n```\nseven\n```\n"
        "```python\nfrom pathlib import Path\nword = Path('in/a.txt').read_text()\n```\n"
        "```python\nprint(len(word))\nprint('x')\n```\n```output\n6\nx\n```\n"
        "```python\n1 / 0\n```\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    ran = run_page(read_page(page))
    assert [(program.output, printed) for program, printed in (next(ran), next(ran))] == [
        (None, ""),
        ("6\nx", "6\nx"),
    ]
    with pytest.raises(ZeroDivisionError) as raised:
        next(ran)
    assert raised.traceback[-1].lineno + 1 == 19
