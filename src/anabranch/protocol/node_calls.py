"""The node's wire protocol: one small JSON document per call.

Source positions are JSON that only the source reads. They travel unchanged, so the documents
around them are JSON too.
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
"""An order to open may be large: it names every file of the state."""


class ReportCall(msgspec.Struct, frozen=True):
    """Poll the node's report; the answer is ``NodeReport``."""

    leader: int
    seen: int
    seconds: float


class OrderCall(msgspec.Struct, frozen=True):
    """Give an order; the answer is empty."""

    leader: int
    order: NodeOrder


class TakeCall(msgspec.Struct, frozen=True):
    """Take the input of an offer; the answer is the input."""

    leader: int
    step: int


class ResultCall(msgspec.Struct, frozen=True):
    """Fetch the result of a step; the answer is ``StepResult``."""

    leader: int
    step: int
    revision: int


class QueryCall(msgspec.Struct, frozen=True):
    """Run a query; the answer is an Arrow stream."""

    sql: str
    rows: int
    bytes: int
    seconds: float


encode = msgspec.json.Encoder().encode
decode_report = msgspec.json.Decoder(NodeReport).decode
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
    """The HTTP status of an error; the document holds the error itself."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
