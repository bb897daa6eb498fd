"""Measurements of Anabranch beside other systems: same data, same machine, same run.

``python -m benchmarks`` runs every case in a process of its own and writes ``docs/benchmarks.md``.
"""
