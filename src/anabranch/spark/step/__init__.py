"""One step as one Spark job: its input, its exchanges, its tasks."""
