"""How fast this Python runs plain code: prints the microseconds of a fixed piece of work.

A Python that was built without profile-guided optimisation is slower by a quarter or more, and
nothing it says about itself tells so in the same way everywhere. So it is measured: the least of
many short runs, in processor time, which a busy machine hardly disturbs.
"""

import time


class Node:
    """Something with attributes, methods and a dict, as most code has."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.seen: dict[int, int] = {}

    def take(self, other: "Node") -> int:
        """Count the other; how many were counted."""
        self.seen[other.key] = self.seen.get(other.key, 0) + 1
        return sum(self.seen.values())


def work() -> float:
    """The processor time of the fixed piece of work, in seconds."""
    started = time.process_time()
    nodes = [Node(key) for key in range(20)]
    for one in nodes:
        for other in nodes:
            one.take(other)
    return time.process_time() - started


if __name__ == "__main__":
    print(round(min(work() for _ in range(500)) * 1e6))
