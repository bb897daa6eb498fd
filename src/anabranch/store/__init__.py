"""Durable, write-once files: how they are created, synced, verified and removed."""
