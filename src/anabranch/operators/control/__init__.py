"""Control messages in a task: how they reach operators and how operators answer."""
