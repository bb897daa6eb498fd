"""What a pipeline remembers: immutable sorted runs, the files that hold them, and the journal.

Runs are looked up and merged as whole columns; nothing here makes a Python object per key.
"""
