"""The operators that region tasks run: pure functions of (state, rows), one file each."""
