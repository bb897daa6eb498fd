"""The daemon that Spark forks its Python workers from, with everything a step needs preloaded.

With pyspark's own daemon every new worker would import Arrow, NumPy and this package: a second of
work at every start, every scale-up and after every failed task. This daemon imports them once, and
the workers share its memory.
"""

from __future__ import annotations

import gc
from importlib import import_module

import numpy as np
import pyarrow as pa
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
    manager()


if __name__ == "__main__":
    main()
