"""What the HTTP servers of coordinator and node share: a thread, connections with bounds."""
