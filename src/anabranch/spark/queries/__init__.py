"""SQL over state: what a query may be, and how it is run beside the steps."""
