"""The order of rows: what they carry of it, and how values compare."""
