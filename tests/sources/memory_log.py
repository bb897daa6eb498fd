"""A source log without a store."""

from __future__ import annotations

from anabranch.errors import StoreUnavailable


class MemoryLog:
    """Keeps the files of a source log in a dictionary.

    >>> log = MemoryLog()
    >>> name = log.write("seen", b"a")
    >>> log.write("seen", b"b") == name
    False
    >>> log.read(name)
    b'a'
    """

    def __init__(self) -> None:
        """Start with no files."""
        self.files: dict[str, bytes] = {}
        self._written = 0

    def write(self, name_hint: str, data: bytes) -> str:
        """Keep the data under a name that was never used before."""
        self._written += 1
        name = f"{name_hint}-{self._written}"
        self.files[name] = data
        return name

    def read(self, name: str) -> bytes:
        """Give back what was written."""
        try:
            return self.files[name]
        except KeyError:
            raise StoreUnavailable("a file of the source log is missing", where=name) from None
