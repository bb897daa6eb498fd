"""From the dataflow to what runs: levels of tasks, the edges between them, plans and commits."""
