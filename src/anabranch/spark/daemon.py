"""The process that Spark forks its Python workers from, with what a step needs loaded already.

Forked from pyspark's own daemon, every new worker would import Arrow, NumPy and this package anew:
a second of work for each, at every start, scale-up and after every failed task. Here that is done
once, and the workers share its memory.
"""

from __future__ import annotations

import gc
from importlib import import_module

import numpy as np
import pyarrow as pa
from pyspark.daemon import manager

PRELOADED = ("pyspark.worker", "pyarrow.parquet", "anabranch.spark.step.reading")


def main() -> None:
    """Load, then fork a worker whenever Spark asks for one, until Spark is gone."""
    for module in PRELOADED:
        import_module(module)
    # Handed something of NumPy's for the first time, Arrow loads pandas, where it is installed.
    pa.array(np.zeros(1))
    # What is loaded stays as it is: a collection in a worker must not touch, and so copy, it.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
