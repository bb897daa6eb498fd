"""State handles of a ``process``: the state of a step's keys, as a user's class changes it."""
