"""Checksums of the files that commits name.

The length of a checksum tells its kind. 16 hexadecimal digits are XXH3, which costs a tenth of a
CRC-32, so every process can verify every file it opens. 8 are CRC-32, which can be computed part
by part while a large file is copied.
"""

from __future__ import annotations

import zlib
from typing import TypeAlias

import pyarrow as pa
import xxhash

Bytes: TypeAlias = bytes | pa.Buffer

_CRC_DIGITS = 8


def checksum_of(data: Bytes) -> str:
    """The XXH3 of some bytes: 64 bits as 16 hexadecimal digits.

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


def has_checksum(data: Bytes, checksum: str) -> bool:
    """Whether some bytes have this checksum, of either kind.

    >>> has_checksum(b"123456789", "cbf43926"), has_checksum(b"123", checksum_of(b"124"))
    (True, False)
    """
    return (crc_of if len(checksum) == _CRC_DIGITS else checksum_of)(data) == checksum
