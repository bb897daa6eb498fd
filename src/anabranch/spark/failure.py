"""Carry errors from tasks to the driver, and translate or shorten Spark's errors.

Spark turns an exception of a task into text. ``carrying_errors`` embeds an ``AnabranchError`` in
that text so that the driver can rebuild it.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from anabranch import errors
from anabranch.errors import AnabranchError, QueryFailed, ReadFailed, StepFailed
from anabranch.operators.error_text import short

# Base64: the text holds the whole traceback, and source lines and messages must not match.
_MARK = re.compile(r"<<anabranch ([A-Za-z0-9+/]+=*)>>")
_RAISED = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*(Error|Exception|Interrupt|Exit|Failed): ")
_NAMED = re.compile(r"(\[[A-Z][A-Z0-9_.]+\] .*?)\s*(?:SQLSTATE|\n\s*at |\n== SQL|$)", re.DOTALL)
_TRACEBACK = "Traceback (most recent call last)"
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LONGEST = 600
_quiet_lock = threading.Lock()
_before: list[list[bool]] = []
INDETERMINATE = "stage with indeterminate output was failed and retried"
"""Spark aborts a job when it has lost rows that it cannot recompute in the same order."""

MALFORMED = "MALFORMED_RECORD"
"""Part of Spark's message when it could not read a row."""
_TOO_DEEP = "FAILED_TO_PARSE_TOO_COMPLEX"
_AGAIN = "The plan stays in the journal; running the pipeline again repeats the step."
_LARGER_STACK = (
    "The dataflow has more branches from one stream than fit on the stack of Spark's parser: start "
    "Spark with spark.driver.extraJavaOptions=-Xss16m and run the pipeline again."
)
_LENIENT = 'Give the source malformed="drop" or malformed="dead-letter"'
_LONG_TEXT = 20_000_000
_LONGER_TEXTS = (
    ", or the option maxStringLen={} if it is JSON with texts of more than 20,000,000 characters"
)
_READ_AGAIN = (
    "The plan names the file as it is, so leave it unchanged. {} and run the pipeline again: it "
    "reads the file again."
)


class _Carried(msgspec.Struct):
    kind: str
    what: str
    where: str | None
    do: str | None


class TaskFailed(Exception):
    """An error leaving a task, in a form that the driver can rebuild."""


@contextmanager
def carrying_errors() -> Iterator[None]:
    """Make an ``AnabranchError`` of a task survive the way to the driver."""
    try:
        yield
    except AnabranchError as error:
        parts = _Carried(type(error).__name__, error.what, error.where, error.do)
        text = base64.b64encode(msgspec.json.encode(parts)).decode()
        raise TaskFailed(f"{error} <<anabranch {text}>>") from error


@contextmanager
def blaming_source(name: str, where: str, do: str) -> Iterator[None]:
    """Turn what the code of a source raises into ``ReadFailed``."""
    try:
        yield
    except AnabranchError:
        raise
    except Exception as error:
        what = f"Source {name!r} raised {type(error).__name__}: {short(str(error))}"
        raise ReadFailed(what, where=where, do=do) from error


@contextmanager
def quietly() -> Iterator[None]:
    """Keep pyspark from logging a page about each error: we translate and raise it.

    Steps and queries overlap; the last one to leave restores the loggers.
    """
    # Pyspark's own way to get its loggers: those of ``logging`` would break its calls.
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    with _quiet_lock:
        # The first to enter saves the original state; later ones save the disabled state.
        _before.append([logger.disabled for logger in loggers])
        for logger in loggers:
            logger.disabled = True
    try:
        yield
    finally:
        with _quiet_lock:
            before = _before.pop()
            if not _before:
                for logger, disabled in zip(loggers, before, strict=True):
                    logger.disabled = disabled


def translate_error(error: Exception) -> AnabranchError:
    """Translate a failure of Spark's into one of our errors."""
    text = str(error)
    ours = rebuilt(text)
    if ours is not None:
        return ours
    if MALFORMED in text or "FAILED_READ_FILE" in text:
        advice = _LENIENT if MALFORMED in text else "Set its option ignoreCorruptFiles to true"
        return ReadFailed(
            f"Spark could not read the input: {brief(text)}", do=_READ_AGAIN.format(advice)
        )
    advice = _LARGER_STACK if _TOO_DEEP in text else _AGAIN
    return StepFailed(f"Spark could not run the step: {brief(text)}", do=advice)


def malformed_row_error(source: str, file: str, raw: str) -> ReadFailed:
    """The error for a row that does not fit its source's schema."""
    long = f" (it has {len(raw):,} characters)" if len(raw) > _LONG_TEXT else ""
    advice = _LENIENT + (_LONGER_TEXTS.format(len(raw)) if long else "")
    return ReadFailed(
        f"Source {source!r} has a row that does not fit its schema: {short(raw)}{long}",
        where=file,
        do=_READ_AGAIN.format(advice),
    )


def rebuilt(text: str) -> AnabranchError | None:
    """The error that a task embedded in this text, if any. User messages may look like one."""
    for found in _MARK.finditer(text):
        try:
            parts = msgspec.json.decode(base64.b64decode(found[1]), type=_Carried)
        except (binascii.Error, msgspec.DecodeError):
            continue
        kind = getattr(errors, parts.kind, StepFailed)
        error: AnabranchError = kind(parts.what, where=parts.where, do=parts.do)
        return error
    return None


def sentence(error: PySparkException | Py4JJavaError) -> str:
    """The first sentence of Spark's message, without its error class and its query context."""
    text = str(error.java_exception if isinstance(error, Py4JJavaError) else error).strip()
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.split(r"\s*SQLSTATE|\s*;\s*line|\n\s*\n|\n== SQL", text)[0]
    return " ".join(text.split()).rstrip(".; ")


def brief(text: str) -> str:
    """The cause of a failure: Python's last exception if Python raised, else Spark's error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("at ", "...", "Driver stacktrace"))]
    raised = [line for line in messages if _RAISED.match(line)]
    named = list(dict.fromkeys(" ".join(match[1].split()) for match in _NAMED.finditer(text)))
    joined = raised[-1] if _TRACEBACK in text and raised else " ".join(named or messages)
    return joined if len(joined) <= _LONGEST else joined[: _LONGEST - 1] + "…"


def query_failure(error: Exception) -> AnabranchError:
    """Translate the failure of a query into one of our errors."""
    text = str(error)
    return rebuilt(text) or QueryFailed(
        f"Spark could not compute the query: {brief(text)}",
        do="Change the query; it does not affect state or steps.",
    )
