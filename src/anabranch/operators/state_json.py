"""State without a schema as JSON text, for readers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

_encode = msgspec.json.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def json_column(packed: pa.Array) -> pa.Array:
    """Convert MessagePack values to JSON; NULL stays NULL.

    Values without a JSON form are approximated: bytes as base64, times as ISO texts, NaN and the
    infinities as ``null``, keys that are neither text nor number as JSON text.

    >>> import pyarrow as pa
    >>> json_column(pa.array([msgspec.msgpack.encode({"n": [1, None]}), None])).to_pylist()
    ['{"n":[1,null]}', None]
    """
    import pyarrow as pa  # noqa: PLC0415  (who prints texts needs none)

    texts = [None if raw is None else json_text(_decode(raw)) for raw in packed.to_pylist()]
    return pa.array(texts, type=pa.string())


def json_text(value: Any) -> str:
    """Convert one value to JSON."""
    try:
        return _encode(value).decode()
    except (TypeError, msgspec.ValidationError):
        return _encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    """The value with replacements for everything that the encoder refuses."""
    match value:
        case msgspec.msgpack.Ext(code=code, data=data):
            return {"code": code, "data": base64.b64encode(data).decode()}
        case Mapping():
            return {_key(key): _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case _:
            return value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json_text(key)
