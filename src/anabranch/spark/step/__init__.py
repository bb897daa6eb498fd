"""One step as one Spark job: what it reads, its exchanges, its tasks."""
