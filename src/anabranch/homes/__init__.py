"""Homes: caches of state files on the machines of the workers that need them."""
