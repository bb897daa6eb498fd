"""Sources that need Spark: Python data sources and Structured Streaming."""
