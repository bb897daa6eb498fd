"""What a Python worker keeps from task to task, out of the garbage collector's sight.

pyspark collects all garbage after every task, which goes through every object that is there:
modules, the program, what is cached. That is more work than a small task. What is alive when a task
begins, just after such a collection, is there to stay, and need not be gone through again.
"""

from __future__ import annotations

import gc

_tasks = 0


def task_begins() -> None:
    """Take what is alive for what stays, after 1, 2, 4, 8, … tasks of this process.

    Objects still go when nothing refers to them. Only a cycle that is alive now and dropped later
    stays in memory, so this is done ever more rarely: a few dozen times in a long life.
    """
    global _tasks  # noqa: PLW0603  (a process has one collector)
    if _tasks and _tasks & (_tasks - 1) == 0:
        gc.freeze()
    _tasks += 1
