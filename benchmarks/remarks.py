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
    "map-1m-10k-keys-transform-row": "with a hundred rows of a key in every batch, "
    "`transformWithState` pays its calls to the state once for all of them; what is left on both "
    "sides is the call of the function per row.",
}
