"""Which worker owns which bin, and how that changes."""
