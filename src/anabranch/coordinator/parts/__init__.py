"""Committed parts: what a pipeline carries from step to step beside its state.

Each part is a frozen value. Every commit journals it whole, so no restart, rewind or repair can
lose it.
"""
