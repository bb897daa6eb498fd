"""State as immutable sorted runs: look-up, writing and compaction over whole columns.

No code here creates a Python object per key.
"""
