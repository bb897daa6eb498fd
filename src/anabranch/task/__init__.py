"""Tasks: what runs in executors for a region or a reader, and what is pickled for it."""
