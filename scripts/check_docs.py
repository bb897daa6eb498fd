"""Check the documents: links lead somewhere, Python examples parse, named make targets exist.

Prints one line per problem, ``file:line: what``, and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = {".venv", ".bench", ".git", ".pytest_cache", ".hypothesis", "build", "dist"}

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*$")
FENCE = re.compile(r"^\s*```(\w*)")
CODE_SPAN = re.compile(r"`[^`]*`")
MAKE = re.compile(r"`make ([a-z][a-z-]*)[^`]*`|^\s*(?:\$ )?make ([a-z][a-z-]*)\s*(?:#.*)?$")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: the line it starts on, its language, its text."""

    line: int
    language: str
    text: str


class Document(NamedTuple):
    """A Markdown file taken apart: prose as (line number, text), and fenced blocks."""

    path: Path
    prose: list[tuple[int, str]]
    blocks: list[Block]


def parse(path: Path) -> Document:
    """Take a document apart; an unclosed fence runs to the end, as in every renderer."""
    prose: list[tuple[int, str]] = []
    blocks: list[Block] = []
    inside: list[str] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if fence and inside is None:
            inside, start, language = [], number, fence[1]
        elif fence and inside is not None:
            blocks.append(Block(start, language, "\n".join(inside)))
            inside = None
        elif inside is not None:
            inside.append(line)
        else:
            prose.append((number, line))
    if inside is not None:
        blocks.append(Block(start, language, "\n".join(inside)))
    return Document(path, prose, blocks)


def anchors(document: Document) -> set[str]:
    """The fragments that the headings of a document can be linked by."""
    headings = (HEADING.match(line) for _, line in document.prose)
    return {slug(heading[1]) for heading in headings if heading}


def slug(heading: str) -> str:
    """A heading as a fragment: lower case, punctuation dropped, blanks as hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(document: Document) -> Iterator[tuple[int, str]]:
    """Links to files that are not there and to headings that no file has."""
    for number, line in document.prose:
        for target in LINK.findall(CODE_SPAN.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, fragment = target.partition("#")
            file = document.path.parent / name if name else document.path
            if not file.exists():
                yield number, f"the link leads nowhere: {target}"
            elif fragment and file.suffix == ".md" and fragment not in anchors(parse(file)):
                yield number, f"the link names a heading that is not there: {target}"


def broken_examples(document: Document) -> Iterator[tuple[int, str]]:
    """Python blocks that do not parse. A block with prompts is a transcript and is left alone."""
    for block in document.blocks:
        if block.language not in ("python", "py") or block.text.lstrip().startswith(">>>"):
            continue
        try:
            ast.parse(textwrap.dedent(block.text))
        except SyntaxError as error:
            yield block.line + (error.lineno or 0), f"the example does not parse: {error.msg}"


def unknown_targets(document: Document, targets: set[str]) -> Iterator[tuple[int, str]]:
    """Make targets that a document names and the Makefile does not have."""
    lines = list(document.prose)
    for block in document.blocks:
        if block.language in ("", "sh", "shell", "bash", "console"):
            lines += enumerate(block.text.splitlines(), start=block.line + 1)
    for number, line in lines:
        for quoted, bare in MAKE.findall(line):
            if (quoted or bare) not in targets:
                yield number, f"there is no such target: make {quoted or bare}"


def problems(root: Path) -> Iterator[str]:
    """Every problem in every document under ``root``."""
    targets = set(TARGET.findall((root / "Makefile").read_text(encoding="utf-8")))
    for path in sorted(root.rglob("*.md")):
        relative = path.relative_to(root)
        if SKIPPED & set(relative.parts):
            continue
        document = parse(path)
        found = [
            *broken_links(document),
            *broken_examples(document),
            *unknown_targets(document, targets),
        ]
        yield from (f"{relative}:{number}: {what}" for number, what in sorted(found))


def main() -> int:
    """Print the problems; 1 if there is one."""
    found = list(problems(ROOT))
    for problem in found:
        print(problem)
    print(f"documents: {len(found)} problems" if found else "documents: no problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
