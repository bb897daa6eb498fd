"""SQL texts, as far as they are understood without Spark; and the port to Spark."""
