"""Committed parts: what a pipeline carries from step to step beside its state.

Each part is a frozen value with one small module. It is journalled whole in every commit, so that
no restart, rewind or repair can forget it.
"""
