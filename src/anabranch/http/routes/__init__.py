"""The routes of the application, one module per group."""
