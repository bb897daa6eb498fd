"""State as immutable sorted runs: look-up, writing and compaction over whole columns.

Nothing here makes a Python object per key.
"""
