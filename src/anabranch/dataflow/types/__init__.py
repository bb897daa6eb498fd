"""The types of columns, rows and keys, and the typing of every operator."""
