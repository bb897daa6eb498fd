"""Findings: what a check reports, before it is attached to an operator."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from anabranch.errors import AnabranchError, Problem

_LONGEST = 400
_MOST_NAMES = 12


class Finding(NamedTuple):
    """What is wrong (no full stop) and what to do about it (a sentence), each on one line."""

    what: str
    do: str

    def at(self, operator: str) -> Problem:
        """The finding as a problem of this operator."""
        return Problem(one_line(operator), one_line(self.what), one_line(self.do))


def from_error(error: AnabranchError, before: str, do: str) -> Finding:
    """The error's text as a finding, prefixed with ``before``; ``do`` if it has no advice."""
    place = f" ({error.where})" if error.where else ""
    what = error.what[:1].lower() + error.what[1:]
    return Finding(f"{before}{what}{place}", error.do or do)


def one_line(text: str) -> str:
    r"""The text without line breaks, truncated if it is long.

    >>> one_line("a  line\n\tand another")
    'a line and another'
    """
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def choose_among(wanted: str, names: Iterable[str]) -> str:
    """Advice for an unknown name: the closest match, or all names."""
    known = list(names)
    if not known:
        return "There are no columns to choose from."
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wanted.lower(), by_lower, n=1)
    if close:
        return f'Did you mean "{by_lower[close[0]]}"?'
    more = "" if len(known) <= _MOST_NAMES else f" and {len(known) - _MOST_NAMES} more"
    return f"The columns are: {', '.join(known[:_MOST_NAMES])}{more}."
