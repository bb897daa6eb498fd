"""Durable, write-once files: made, synced, checked, removed."""
