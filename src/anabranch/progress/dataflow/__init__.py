"""The frontiers of a running dataflow, computed from what its commits carry.

Everything here is a value or a function of values. The library beside it does the arithmetic.
"""
