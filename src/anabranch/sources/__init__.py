"""Sources: where rows come from. `port` says what a source is; the other modules are sources."""
