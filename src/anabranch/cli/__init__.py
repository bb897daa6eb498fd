"""The command ``anabranch``."""
