"""The checker of the documents finds what is planted, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_docs import problems


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see [it](gone.md)", ["a.md:1: the link leads nowhere: gone.md"]),
        ("# One Two!\n[up](#one-two)", []),
        ("# One\n\n[up](#two)", ["a.md:3: the link names a heading that is not there: #two"]),
        ("[web](https://example.org/x) and `[code](gone.md)`", []),
        ("```python\nx = 1\n```", []),
        ("```python\nx = 1\ny = = 2\n```", ["a.md:3: the example does not parse: invalid syntax"]),
        ("```text\nx = = 2\n```", []),
        ("run `make test`", []),
        ("run `make tset`", ["a.md:1: there is no such target: make tset"]),
        (
            "```sh\nmake test  # well\nmake tset\n```",
            ["a.md:3: there is no such target: make tset"],
        ),
        ("we make no promise", []),
    ],
)
def test_documents_are_checked(tmp_path: Path, text: str, found: list[str]) -> None:
    (tmp_path / "Makefile").write_text("test: ## tests\n", encoding="utf-8")
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    assert list(problems(tmp_path)) == found


def test_environments_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n", encoding="utf-8")
    package = tmp_path / ".venv" / "lib"
    package.mkdir(parents=True)
    (package / "README.md").write_text("[it](gone.md)", encoding="utf-8")
    assert list(problems(tmp_path)) == []
