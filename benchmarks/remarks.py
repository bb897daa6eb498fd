"""What the time is spent on where a target is missed, by the target's name.

A sentence here is shown only when its target is missed. Where there is none, the largest parts of
the step's profile are named instead.
"""

REMARKS: dict[str, str] = {
    "map-1m-hdfs": "the function is called a million times in Python, once per row in its key's "
    "order; native aggregation adds up rows in compiled code.",
    "map-1m-10k-keys-hdfs": "native aggregation adds up the rows of a key before the exchange, so "
    "that 10 k rows of each task cross it; a function of the user's needs every row, and a million "
    "rows cross it and are handed to Python.",
    "held": "keys of a batch are looked up in ten million, all over the files, where the other "
    "base fits in a processor's cache; and merging goes through the whole base once in these "
    "steps. Both are in the table below.",
    "rescale-step": "while bins are copied, the tasks of the new workers come on top of those of "
    "the old ones, and two cores run them one after the other; what is copied is also checked, "
    "opened and looked up in.",
    "rescale-gap-1m": "the longest gap is the longest step of the rescale, and a step of 20,000 "
    "rows takes most of that time without a rescale, too.",
    "rescale-gap-100k": "the longest gap is one step. With few keys Spark's own way takes little "
    "more than stopping and starting a query, and a step of ours takes what it takes with any "
    "number of keys.",
    "map-1m-10k-keys-transform-row": "with a hundred rows of a key in every batch, "
    "`transformWithState` pays its calls to the state once for all of them; what is left on both "
    "sides is the call of the function per row.",
}
