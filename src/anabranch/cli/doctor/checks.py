"""What the doctor says: one line for each thing it looked at."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """Whether pipelines can run with it, can run badly, or cannot."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at: what was found, and what to do about it."""

    name: str
    verdict: Verdict
    what: str
    do: str | None = None


def ok(name: str, what: str) -> Check:
    """All is well."""
    return Check(name, Verdict.OK, what)


def warn(name: str, what: str, do: str) -> Check:
    """It works, but not well."""
    return Check(name, Verdict.WARN, what, do)


def failed_check(name: str, what: str, do: str) -> Check:
    """Pipelines cannot run like this."""
    return Check(name, Verdict.FAIL, what, do)
