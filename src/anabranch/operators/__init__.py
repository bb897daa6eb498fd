"""What a region task runs: pure over (state, rows), one file per operator."""
