"""The arithmetic of windows over arrays of times. Times are microseconds since 1970."""
