"""The connector protocol without sockets: frames, their bytes, and what may follow what."""
