"""Errors across Spark's border: an ``AnabranchError`` raised in a task is one again on the driver.

Spark turns what a task raises into a text. The error is written into that text in a form that can
be found again.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from anabranch import errors
from anabranch.errors import AnabranchError, ReadFailed, StepFailed

# Base64, because the text holds the whole traceback: source lines and messages must not match.
_MARK = re.compile(r"<<anabranch ([A-Za-z0-9+/]+=*)>>")
_RAISED = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*(Error|Exception|Interrupt|Exit|Failed): ")
_LONGEST = 600


class _Carried(msgspec.Struct):
    kind: str
    what: str
    where: str | None
    do: str | None


class TaskFailed(Exception):
    """An error on its way out of a task, written so that the driver can rebuild it."""


@contextmanager
def carried() -> Iterator[None]:
    """Let an ``AnabranchError`` survive the way from a task to the driver."""
    try:
        yield
    except AnabranchError as error:
        parts = _Carried(type(error).__name__, error.what, error.where, error.do)
        text = base64.b64encode(msgspec.json.encode(parts)).decode()
        raise TaskFailed(f"{error} <<anabranch {text}>>") from error


def translated(error: Exception) -> AnabranchError:
    """The error of ours that a failure of Spark's stands for."""
    text = str(error)
    found = _MARK.search(text)
    if found is not None:
        parts = msgspec.json.decode(base64.b64decode(found[1]), type=_Carried)
        kind = getattr(errors, parts.kind, StepFailed)
        rebuilt: AnabranchError = kind(parts.what, where=parts.where, do=parts.do)
        return rebuilt
    if "MALFORMED_RECORD" in text or "FAILED_READ_FILE" in text:
        return ReadFailed(
            f"Spark could not read the input: {_brief(text)}",
            do="Mend or move the file, or set the reader's mode option to PERMISSIVE.",
        )
    return StepFailed(
        f"Spark could not run the step: {_brief(text)}",
        do="The plan stays in the journal; running the pipeline again repeats the step.",
    )


def _brief(text: str) -> str:
    """What went wrong: Python's last word if Python raised, else Spark's first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "...", "Driver stacktrace"))]
    raised = [line for line in told if _RAISED.match(line)]
    joined = raised[-1] if raised else " ".join(told)
    return joined if len(joined) <= _LONGEST else joined[: _LONGEST - 1] + "…"
