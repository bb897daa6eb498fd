"""Count words: a function over tables gives several rows for one, an aggregate counts them.

Run it in this directory.
"""

import re

import numpy as np
import pyarrow as pa

import anabranch as ab

flow = ab.Dataflow("word-count")
source = ab.FileSource("text", "text", "value string", watch=False)


def split(lines):
    words = [re.findall(r"\w+", line.lower()) for line in lines["value"].to_pylist()]
    return pa.table(
        {
            "word": [word for found in words for word in found],
            # Which line each word is from.
            "_ord": np.repeat(lines["_ord"], [len(found) for found in words]),
        }
    )


words = flow.source("lines", source).map_batches("split", split, output="word string")
counts = words.key_distribute("by-word", "word").aggregate("count", n="count(*)")
counts.sink("counts", ab.FileSink("out/word-counts", "parquet"))

pipeline = ab.run(flow, directory="word-count.state")
pipeline.wait()
most = pipeline.query("select word, n from count order by n desc, word limit 5")
for row in most.to_pylist():
    print(f"{row['word']:6} {row['n']}")
