"""Run a query of Nexmark over generated events: `python -m examples.nexmark q05`.

It needs no input. Run it in the directory above `examples`.
"""

import argparse
import importlib
import tempfile
import time

import anabranch as ab
from examples.nexmark.events import event_source, nexmark

parser = argparse.ArgumentParser(prog="python -m examples.nexmark", description=__doc__)
parser.add_argument("query", help="q00 to q09, q11, q15 to q20")
parser.add_argument("--events", type=int, default=200_000)
parser.add_argument("--workers", type=int, default=2)
asked = parser.parse_args()

flow = ab.Dataflow(asked.query)
sink = ab.MemorySink()
program = importlib.import_module(f"examples.nexmark.{asked.query}")
program.query(nexmark(flow, event_source(asked.events, partitions=2))).sink("out", sink)

print(program.__doc__)
with tempfile.TemporaryDirectory() as directory:
    started = time.perf_counter()
    ab.run(flow, directory=directory, workers=asked.workers).wait()
    seconds = time.perf_counter() - started
rows = sink.rows()
print(*rows[:3], "…", *rows[-3:], sep="\n")
print(
    f"{len(rows):,} rows out of {asked.events:,} events in {seconds:.1f} s, starting Spark included"
)
