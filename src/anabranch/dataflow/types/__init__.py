"""The types of columns, rows and keys: schemas, and every operator typed."""
