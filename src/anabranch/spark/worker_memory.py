"""Hide a Python worker's long-lived objects from the garbage collector.

pyspark runs a full collection after every task, which visits every object: modules, the program,
caches. That costs more than a small task. An object that is alive when a task begins, just after
such a collection, is there to stay and need not be visited again.
"""

from __future__ import annotations

import gc

_tasks = 0


def freeze_long_lived() -> None:
    """Freeze all live objects after 1, 2, 4, 8, … tasks of this process; call it in each task.

    Objects are still freed when nothing refers to them. Only a cycle that is alive now and dropped
    later leaks, so this happens ever more rarely: a few dozen times in a long life.
    """
    global _tasks  # noqa: PLW0603  (a process has one collector)
    if _tasks and _tasks & (_tasks - 1) == 0:
        gc.freeze()
    _tasks += 1
