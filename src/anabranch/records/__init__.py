"""Values that cross rooms: plans, commits, checkpoints, bins, run lists, layouts."""
