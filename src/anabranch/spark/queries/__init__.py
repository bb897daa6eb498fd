"""SQL over state: which queries are allowed, and how they run beside the steps."""
