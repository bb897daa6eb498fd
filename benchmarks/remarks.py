"""What the time is spent on where a target is missed, by the target's name.

A sentence here is shown only when its target is missed. Where there is none, the largest parts of
the step's profile are named instead.
"""

REMARKS: dict[str, str] = {}
