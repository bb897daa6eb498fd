"""The coordinator over HTTP: the application, its server, and a client of it."""
