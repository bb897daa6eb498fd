"""Checks of the versions of Python and of the required packages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from anabranch.cli.doctor.checks import Check, failed_check, ok

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)")
_CLAUSE = re.compile(r"^(==|>=|<=|!=|<|>)\s*([0-9][0-9.]*?)(\.\*)?$")


def package_checks() -> Iterator[Check]:
    """Python itself, then each required package."""
    yield python_check(sys.version_info[:3])
    for requirement in requires("anabranch") or ():
        # Extras are optional.
        if "extra ==" not in requirement:
            yield package_check(requirement)


def python_check(running: tuple[int, int, int]) -> Check:
    """Whether this Python is new enough."""
    text = ".".join(map(str, running))
    if running < (3, 11):
        return failed_check("python", f"{text}, needs 3.11 or newer", "Install a newer Python.")
    return ok("python", f"{text}, {sys.executable}")


def package_check(requirement: str) -> Check:
    """Whether the installed package satisfies a requirement."""
    matched = _REQUIREMENT.match(requirement)
    assert matched is not None
    name, wanted = matched[1], matched[2].strip()
    try:
        found = version(name)
    except PackageNotFoundError:
        found = "missing"
    else:
        if satisfies(found, wanted):
            return ok(name, found)
    do = f'Install it: pip install "{name}{wanted}".'
    return failed_check(name, f"{found}, needs {wanted}", do)


def satisfies(found: str, wanted: str) -> bool:
    """Whether a version satisfies a requirement.

    Understands the forms that pyproject.toml uses; any other clause accepts every version.

    >>> satisfies("4.3.1", "==4.3.*"), satisfies("4.4.0", "==4.3.*"), satisfies("3.0", ">=2.2,<3")
    (True, False, False)
    """
    return all(_accepts(clause.strip(), _numbers(found)) for clause in wanted.split(",") if clause)


def _accepts(clause: str, found: tuple[int, ...]) -> bool:
    matched = _CLAUSE.match(clause)
    if matched is None:
        return True
    sign, wanted, prefix = matched[1], _numbers(matched[2]), matched[3] is not None
    if prefix:
        same = found[: len(wanted)] == wanted
        return same if sign == "==" else not same
    length = max(len(found), len(wanted))
    left, right = (numbers + (0,) * (length - len(numbers)) for numbers in (found, wanted))
    return {
        "==": left == right,
        "!=": left != right,
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
    }[sign]


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``4.3.0rc1`` counts as 4.3.0."""
    matched = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, matched[0].split("."))) if matched else ()
