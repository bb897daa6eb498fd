"""The assignment of bins to workers, and how a rescale changes it."""
