"""What is kept of each aggregate function per key, and how rows change it: one class each.

A function reduces the rows that a step brings for a key and combines that with the key's state;
all keys of the step at once, in Arrow and NumPy. ``registry.make`` gives the function of a column.
"""
