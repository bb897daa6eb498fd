"""A coordinator as far as leading goes: a process that does what it is told on its standard input.

Each line is a command, each answer one line of JSON. ``stop <call> <n>`` lets the process stop
itself (SIGSTOP) before the nth call of ``os.<call>`` from then on; ``stop-after`` right after it.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.journal.entry_names import CommitName
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Taken
from anabranch.journal.leadership import Leadership


def stop_at(call: str, number: int, *, after: bool = False) -> None:
    real: Callable[..., Any] = getattr(os, call)
    calls = itertools.count(1)

    def stopping(*arguments: object, **named: object) -> object:
        mine = next(calls) == number
        if mine and not after:
            os.kill(os.getpid(), signal.SIGSTOP)
        result = real(*arguments, **named)
        if mine and after:
            os.kill(os.getpid(), signal.SIGSTOP)
        return result

    setattr(os, call, stopping)


def fork_twice() -> dict[str, object]:
    """Leave a grandchild that outlives this process, and does not belong to it any more."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        grandchild = os.fork()
        if grandchild == 0:
            os.close(0)
            os.close(1)
            time.sleep(60)
        else:
            os.write(writing, str(grandchild).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return {"grandchild": int(os.read(reading, 32))}


def commit(leadership: Leadership, step: int) -> dict[str, object]:
    mine = str(os.getpid()).encode()
    outcome = leadership.journal.create(CommitName(step), mine, f"{os.getpid()}-{step}")
    if isinstance(outcome, Taken):
        return {"taken": outcome.entry.body.decode()}
    return {"won": step}


def obey(leadership: Leadership, verb: str, arguments: list[str]) -> dict[str, object]:
    match verb:
        case "lead":
            take_over = "take-over" in arguments
            number = leadership.lead(take_over, "here", os.getpid(), time.time_ns(), "here:1")
            return {"led": number}
        case "commit":
            return commit(leadership, int(arguments[0]))
        case "commits":
            for step in itertools.count(int(arguments[0])):
                commit(leadership, step)
        case "trim":
            return {"trimmed": len(leadership.journal.trim(int(arguments[0])))}
        case "release":
            leadership.release()
        case "fork":
            return fork_twice()
        case "stop":
            stop_at(arguments[0], int(arguments[1]))
        case "stop-after":
            stop_at(arguments[0], int(arguments[1]), after=True)
    return {}


def main() -> None:
    leadership = Leadership(FileDirectory(Path(sys.argv[1])))
    for line in sys.stdin:
        verb, *arguments = line.split()
        answer: dict[str, object]
        try:
            answer = obey(leadership, verb, arguments)
        except AnabranchError as error:
            answer = {"code": error.code, "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
