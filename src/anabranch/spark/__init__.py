"""The data plane on Spark: the only room that imports it."""
