"""Nexmark beside Structured Streaming: the programs of ``examples/nexmark``, as they are there.

The queries of the other side are in ``structured.py``, the data of both in ``data.py``.
"""
