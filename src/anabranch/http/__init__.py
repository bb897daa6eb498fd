"""The coordinator over HTTP: the application, its server and its client."""
