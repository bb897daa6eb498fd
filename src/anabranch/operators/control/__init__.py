"""Control messages in a task: how operators are shown them and answer."""
