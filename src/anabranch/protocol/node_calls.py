"""The node's protocol as it travels: one small JSON document for each call.

Positions of sources are JSON that nobody but the source reads. They travel as they are, which is
why the documents around them are JSON too.
"""

from __future__ import annotations

import msgspec

from anabranch.errors import (
    AnabranchError,
    Fenced,
    NodeUnreachable,
    QueryError,
    QueryTimeout,
    QueryTooLarge,
    SnapshotExpired,
)
from anabranch.protocol.node import Failure, NodeOrder, NodeReport, StepResult
from anabranch.records.plan import Input

SECRET = "X-Anabranch-Secret"
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"

LONGEST_POLL = 10.0
LARGEST_CALL = 256 << 20
"""An order to open names every file of the state: it may be large."""


class TellCall(msgspec.Struct, frozen=True):
    """Ask what the node says; the answer is ``NodeReport``."""

    leader: int
    seen: int
    seconds: float


class OrderCall(msgspec.Struct, frozen=True):
    """Give an order; the answer is empty."""

    leader: int
    order: NodeOrder


class TakeCall(msgspec.Struct, frozen=True):
    """Take the input of an offer; the answer is that."""

    leader: int
    step: int


class ResultCall(msgspec.Struct, frozen=True):
    """Fetch the result of a step; the answer is ``StepResult``."""

    leader: int
    step: int
    revision: int


class QueryCall(msgspec.Struct, frozen=True):
    """Ask a query; the answer is an Arrow stream."""

    sql: str
    rows: int
    bytes: int
    seconds: float


encode = msgspec.json.Encoder().encode
decode_told = msgspec.json.Decoder(NodeReport).decode
decode_inputs = msgspec.json.Decoder(tuple[Input, ...]).decode
decode_result = msgspec.json.Decoder(StepResult).decode
decode_failure = msgspec.json.Decoder(Failure).decode

_STATUS: tuple[tuple[type[AnabranchError], int], ...] = (
    (Fenced, 409),
    (NodeUnreachable, 404),
    (SnapshotExpired, 410),
    (QueryTooLarge, 413),
    (QueryTimeout, 504),
    (QueryError, 400),
)


def call_status(error: AnabranchError) -> int:
    """The HTTP status that an error travels under; what it was is in the document."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
