"""The user's dataflow: its graph, the streams that build it, and its validation."""
