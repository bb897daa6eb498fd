"""Timers of a ``process``: what falls due in a step, what calls set, and the order of a step."""
