"""A whole cluster in one thread, with faults drawn from a seed."""
