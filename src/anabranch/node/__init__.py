"""The node: what runs steps, whichever data plane carries the rows."""
