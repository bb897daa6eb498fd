"""How Spark writes and takes the path of a file.

Spark prints `_metadata.file_path` as a URI in Java's spelling, and takes the paths that it is told
to read as Hadoop patterns. Both spellings are checked against a real Spark in the tests.
"""

from __future__ import annotations

import re
import unicodedata
import zlib

#: Everything but the ASCII that Java leaves alone in the path of a URI.
_DOUBTFUL = re.compile(r"[^a-zA-Z0-9_\-!.~'()*,;:$&+=@/]")
_PATTERN = re.compile(r"[{}\[\]*?\\]")
_SPACES = frozenset({"Zs", "Zl", "Zp"})


def file_uri(path: str) -> str:
    """Spell an absolute path as Spark prints it in `_metadata.file_path`.

    Not `urllib.parse.quote`: Java keeps letters of all scripts and escapes only spaces, control
    characters and some punctuation.

    >>> file_uri("/in/50% off é.json")
    'file:/in/50%25%20off%20é.json'
    """
    return "file:" + _DOUBTFUL.sub(_quoted, path)


def file_tag(path: str) -> int:
    """Compute what Spark computes as `crc32(_metadata.file_path)`: 32 bits.

    Two files may have the same tag. Those that a `FileSource` hands out for one step never have.

    >>> file_tag("/in/a.json") == zlib.crc32(b"file:/in/a.json")
    True
    """
    return zlib.crc32(file_uri(path).encode())


def spark_path(path: str) -> str:
    r"""Spell a path so that a Spark reader takes it literally and not as a pattern.

    >>> print(spark_path("/in/a[1].json"))
    file:///in/a\[1\].json
    """
    return hadoop_path(_PATTERN.sub(r"\\\g<0>", path))


def hadoop_path(path: str) -> str:
    """Spell an absolute path so that Hadoop looks for it here, whatever its default file system is.

    Not `Path.as_uri`: Hadoop takes what stands there as it is, and a `%20` for three letters.

    >>> hadoop_path("/out/50% off")
    'file:///out/50% off'
    """
    return f"file://{path}"


def _quoted(found: re.Match[str]) -> str:
    letter = found.group()
    if letter >= "\xa0" and unicodedata.category(letter) not in _SPACES:
        return letter
    return "".join(f"%{byte:02X}" for byte in letter.encode())
