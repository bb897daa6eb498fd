"""Profiles as text: a paragraph and a table for each task."""

from __future__ import annotations

from pathlib import PurePath

from anabranch.http.schemas import ProfileAnswer
from anabranch.http.text_table import text_table, visible
from anabranch.records.profiles import MemoryUse, ProfileKind, TaskProfile

NOT_YET = "No step has read any rows yet: ask again.\n"
_MIB = 1 << 20


def profile_text(answer: ProfileAnswer) -> str:
    """All profiles of an answer."""
    if not answer.done:
        return NOT_YET
    return "\n".join(_task(answer.step, each) for each in answer.profiles)


def _task(step: int | None, profile: TaskProfile) -> str:
    where = f"step {step}, {visible(profile.group)}, worker {profile.worker}"
    lines = [f"{where}: {1000 * profile.seconds:.1f} ms while profiled"]
    if profile.memory is not None:
        lines.append(_memory(profile.memory))
    more = f"and {profile.left_out} more\n" if profile.left_out else ""
    return "\n".join([*lines, "", _table(profile) + more])


def _memory(used: MemoryUse) -> str:
    return (
        f"resident {_mib(used.resident)}, Arrow {_mib(used.arrow)} (most {_mib(used.arrow_most)}), "
        f"objects of this step {_mib(used.python)} (most {_mib(used.python_most)})"
    )


def _table(profile: TaskProfile) -> str:
    if profile.kind is ProfileKind.HEAP:
        rows = [[each.bytes, each.blocks, _place(each.file, each.line)] for each in profile.lines]
        return text_table(["bytes", "blocks", "line"], rows)
    found = [
        [
            round(1000 * each.own_seconds, 2),
            round(1000 * each.seconds, 2),
            each.calls,
            each.function,
            _place(each.file, each.line),
        ]
        for each in profile.functions
    ]
    return text_table(["own ms", "ms", "calls", "function", "where"], found)


def _place(file: str, line: int) -> str:
    """A line of a file, with the last parts of its path.

    >>> _place("/usr/lib/python3/site-packages/numpy/lib/io.py", 7), _place("", 0)
    ('numpy/lib/io.py:7', '')
    """
    return f"{'/'.join(PurePath(file).parts[-3:])}:{line}" if file else ""


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
