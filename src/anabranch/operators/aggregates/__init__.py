"""The aggregate functions: their state per key, one class each.

A function reduces a step's rows of each key to a state, and merges two states into one, for all
keys at once, in Arrow and NumPy. ``registry.make`` creates the function of a column.
"""
