"""The kit for tests: a manual clock, a data plane in memory, a faulty disk, a simulated cluster."""
