"""How a simulation says that a rule does not hold."""

from __future__ import annotations


class RuleBroken(AssertionError):
    """Something happened that must never happen: with the seed, and what led to it."""


class Broken(BaseException):
    """A rule does not hold. No error: nothing of what is simulated may catch it."""


def require(holds: bool, text: str) -> None:
    """Raise ``Broken`` unless something holds."""
    if not holds:
        raise Broken(text)
