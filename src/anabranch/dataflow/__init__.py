"""What the user says: the graph of a dataflow, the streams it is written with, its validation."""
