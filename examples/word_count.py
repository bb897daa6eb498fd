"""Count words: a function that emits several rows, then an aggregate. Run it in this directory.

The function needs no state. It is spread over the workers by the hash of the line, and forgets
every key at once by returning None for the state.
"""

import re

import anabranch as ab

flow = ab.Dataflow("word-count")
source = ab.FileSource("text", "text", "value string", watch=False)


def split(key, line, nothing):
    return [(word,) for word in re.findall(r"\w+", line.value.lower())], None


words = (
    flow.source("lines", source)
    .key_distribute("by-line", line="xxhash64(value)")
    .stateful_map("split", split, state="nothing boolean", output="word string")
)
counts = words.key_distribute("by-word", "word").aggregate("count", n="count(*)")
counts.sink("counts", ab.FileSink("out/word-counts", "parquet"))

pipeline = ab.run(flow, directory="word-count.state")
pipeline.wait()
most = pipeline.query("select word, n from count order by n desc, word limit 5")
for row in most.to_pylist():
    print(f"{row['word']:6} {row['n']}")
