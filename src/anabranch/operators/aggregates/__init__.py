"""The aggregate functions: their state per key, and how rows change it, one class each.

A function reduces a step's rows of each key and combines that with the key's state, for all keys at
once, in Arrow and NumPy. ``registry.make`` creates the function of a column.
"""
