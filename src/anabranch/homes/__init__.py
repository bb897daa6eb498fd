"""Homes: copies of state files on the machine of the worker that needs them.

They are caches, never the truth.
"""
