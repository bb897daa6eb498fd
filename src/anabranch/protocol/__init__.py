"""Interfaces between rooms: sources, sinks and the node; orders, reports, status."""
