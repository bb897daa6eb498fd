"""docs/errors.md lists every error there is, with its code, class and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from anabranch import errors
from anabranch.errors import AnabranchError

PAGE = Path(__file__).resolve().parents[2] / "docs/errors.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \| `(\w+)` \| (.+?) \| (.+) \|$", re.MULTILINE)
BRANCH = re.compile(r"^## (\w+Error)\n\n`(\w+)`: (.+)$", re.MULTILINE)


def kinds(base: type[AnabranchError]) -> Iterator[type[AnabranchError]]:
    """The classes of errors.py below one; tests elsewhere may have made others."""
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from kinds(kind)


def meaning(kind: type[AnabranchError]) -> str:
    """The first paragraph of a docstring as one line."""
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def expected(*, branches: bool) -> set[tuple[str, str, str]]:
    found = (kind for kind in kinds(AnabranchError) if branches == any(kinds(kind)))
    return {(kind.code, kind.__name__, meaning(kind)) for kind in found}


def test_every_error_has_a_row_and_every_row_an_error() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert {(code, name, text) for code, name, text, _ in rows} == expected(branches=False)
    assert all(advice.endswith(".") for *_, advice in rows)


def test_every_branch_has_a_section_and_every_section_a_branch() -> None:
    sections = BRANCH.findall(PAGE.read_text(encoding="utf-8"))
    assert {(code, name, text) for name, code, text in sections} == expected(branches=True)


def test_codes_are_unique_and_begin_with_their_branch() -> None:
    found = list(kinds(AnabranchError))
    assert len({kind.code for kind in found}) == len(found)
    branches = [kind for kind in found if any(kinds(kind))]
    for branch in branches:
        if branch.__name__ != "BuildError":  # named after what is wrong instead
            assert all(kind.code.startswith(f"{branch.code}.") for kind in kinds(branch))


def test_the_drawing_in_the_code_has_every_branch() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert drawn == [
        kind.__name__
        for kind in AnabranchError.__subclasses__()
        if kind.__module__ == errors.__name__
    ]
