"""The order of rows, and how values compare."""
