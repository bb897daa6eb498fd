"""A check of the doctor: one line of its report."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """Whether pipelines can run, can run badly, or cannot run."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Check(msgspec.Struct, frozen=True):
    """One result: what the doctor found, and what to do about it."""

    name: str
    verdict: Verdict
    what: str
    do: str | None = None


def ok(name: str, what: str) -> Check:
    """A check that passed."""
    return Check(name, Verdict.OK, what)


def warn(name: str, what: str, do: str) -> Check:
    """A check that found something that works, but badly."""
    return Check(name, Verdict.WARN, what, do)


def failed_check(name: str, what: str, do: str) -> Check:
    """A check that found something that keeps pipelines from running."""
    return Check(name, Verdict.FAIL, what, do)
