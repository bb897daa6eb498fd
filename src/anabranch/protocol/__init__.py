"""Calls that cross rooms: ports of sources, sinks and the node; orders, reports, status."""
