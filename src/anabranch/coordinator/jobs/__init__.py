"""Jobs: work that runs beside the steps, over many events. Each job alone changes its state."""
