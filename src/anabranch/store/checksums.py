"""Checksums of the files that commits name: which bytes were committed.

A checksum says of what kind it is by its length: 16 hexadecimal digits are XXH3, which costs a
tenth of a CRC-32 and so next to nothing where every file is read once by every process; 8 are
a CRC-32, which can be carried on from one part of a large file to the next.
"""

from __future__ import annotations

import zlib
from typing import TypeAlias

import pyarrow as pa
import xxhash

Bytes: TypeAlias = bytes | pa.Buffer

_CRC_DIGITS = 8


def checksum_of(data: Bytes) -> str:
    """The XXH3 of some bytes, 64 bits as 16 hexadecimal digits.

    >>> checksum_of(b"123456789")
    '72dcb18b67a17dff'
    """
    return xxhash.xxh3_64_hexdigest(data)


def crc_of(data: Bytes) -> str:
    """The CRC-32 of some bytes as 8 hexadecimal digits.

    >>> crc_of(b"123456789")
    'cbf43926'
    """
    return format(zlib.crc32(data), "08x")


def agrees(data: Bytes, checksum: str) -> bool:
    """Whether some bytes have a checksum, of whichever kind it is.

    >>> agrees(b"123456789", "cbf43926"), agrees(b"123456780", checksum_of(b"123456789"))
    (True, False)
    """
    found = crc_of(data) if len(checksum) == _CRC_DIGITS else checksum_of(data)
    return found == checksum
