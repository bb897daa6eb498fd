"""A data plane in memory, in the place of Spark."""
