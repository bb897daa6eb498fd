"""The demo: orders arrive, two rescales run, and the result is checked independently."""
