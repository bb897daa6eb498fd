"""The data plane: the only room that knows Spark."""
