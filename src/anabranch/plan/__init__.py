"""The physical plan of a dataflow: levels of tasks, and the edges between them."""
