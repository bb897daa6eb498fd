"""The journal: entries that are created exclusively, branches, and who may write."""
