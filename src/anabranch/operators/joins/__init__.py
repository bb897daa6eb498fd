"""Joins of two streams over event time.

Rows of both sides come as one stream, marked with their side. Each kind of join has one module; the
rest of the modules are what they share: columns, the rows of a side, and searches by key and time.
"""
