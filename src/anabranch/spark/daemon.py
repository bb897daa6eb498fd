"""The daemon that Spark forks its Python workers from, with everything a step needs preloaded.

With pyspark's own daemon every new worker would import Arrow, NumPy and this package: a second of
work at every start, every scale-up and after every failed task. This daemon imports them once, and
the workers share its memory.
"""

from __future__ import annotations

import gc
import sys
import traceback
from importlib import import_module
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyspark.daemon
from pyspark.daemon import manager

PRELOADED = ("pyspark.worker", "pyarrow.parquet", "anabranch.spark.step.reading")


def main() -> None:
    """Preload, then fork a worker whenever Spark asks for one, until Spark ends."""
    for module in PRELOADED:
        import_module(module)
    # Converting a first NumPy array makes Arrow import pandas, if installed.
    pa.array(np.zeros(1))
    # A collection in a worker must not touch, and thereby copy, the preloaded objects.
    gc.collect()
    gc.freeze()
    vars(pyspark.daemon)["traceback"] = quiet_traceback()
    manager()


def quiet_traceback() -> ModuleType:
    """What pyspark's daemon prints a dead worker's traceback with: silent for a closed socket.

    The JVM closes a worker's socket when it cancels the task because another one has failed. A
    traceback would hide the error of that one.
    """

    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
            traceback.print_exc()

    quiet = ModuleType(traceback.__name__)
    quiet.__dict__.update(vars(traceback), print_exc=print_exc)
    return quiet


if __name__ == "__main__":
    main()
