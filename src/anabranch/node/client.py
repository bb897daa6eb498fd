"""A node in another process on this host, by HTTP. Any thread may call.

Every call has a deadline. A connection that was kept and turns out to be dead is made anew once:
all calls may come twice without harm.
"""

from __future__ import annotations

import http.client
import threading
from contextlib import suppress

import msgspec
import pyarrow as pa

from anabranch.errors import NodeUnreachable
from anabranch.node.address import NodeAddress
from anabranch.protocol.failures import error_of
from anabranch.protocol.node import NodeOrder, NodeReport, StepResult
from anabranch.protocol.node_calls import (
    JSON,
    LONGEST_POLL,
    SECRET,
    OrderCall,
    QueryCall,
    ReportCall,
    ResultCall,
    TakeCall,
    decode_failure,
    decode_inputs,
    decode_report,
    decode_result,
    encode,
)
from anabranch.records.plan import Input

DEADLINE_SECONDS = 10.0

_DEAD = (http.client.HTTPException, ConnectionError)


class HttpNode:
    """The protocol of the port over HTTP, with the secret of an address."""

    def __init__(self, address: NodeAddress, deadline: float = DEADLINE_SECONDS) -> None:
        """Nothing is connected yet. ``deadline`` is how long an answer may take."""
        self.address = address
        self._where = f"{address.host}:{address.port}, process {address.pid}"
        self._deadline = deadline
        self._own = threading.local()

    def report(self, leader: int, seen: int, seconds: float) -> NodeReport:
        """What the node says once it is newer than ``seen``, ``LONGEST_POLL`` at the latest."""
        seconds = min(seconds, LONGEST_POLL)
        return decode_report(self._call("told", ReportCall(leader, seen, seconds), seconds))

    def order(self, leader: int, order: NodeOrder) -> None:
        """Give an order. Returns once it is taken; raises ``Fenced`` or ``NodeUnreachable``."""
        self._call("order", OrderCall(leader, order))

    def take(self, leader: int, step: int) -> tuple[Input, ...]:
        """The input of the offer for a step; from then on the offer does not change."""
        return decode_inputs(self._call("take", TakeCall(leader, step)))

    def result(self, leader: int, step: int, revision: int) -> StepResult:
        """The result of the last step that was run."""
        return decode_result(self._call("result", ResultCall(leader, step, revision)))

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """The rows of one SQL query over the state at the last committed step."""
        data = self._call("query", QueryCall(sql, rows, bytes, seconds), seconds)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_all()

    def close(self) -> None:
        """Close the connection of this thread; others end with their threads."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def _call(self, verb: str, call: msgspec.Struct, seconds: float = 0.0) -> bytes:
        """Post a call and give its answer; ``seconds`` is how long it may wait on purpose."""
        body, address = encode(call), self.address
        kept = getattr(self._own, "connection", None)
        try:
            if kept is not None:
                with suppress(*_DEAD):
                    return self._posted(kept, verb, body, seconds)
                self.close()
            fresh = http.client.HTTPConnection(address.host, address.port, timeout=self._deadline)
            self._own.connection = fresh
            return self._posted(fresh, verb, body, seconds)
        except (*_DEAD, OSError, msgspec.DecodeError) as error:
            self.close()
            raise NodeUnreachable(
                f"The node does not answer {verb!r}: {type(error).__name__}: {error}",
                where=self._where,
                do="It may have ended: another one is started where the coordinator can.",
            ) from error

    def _posted(
        self, connection: http.client.HTTPConnection, verb: str, body: bytes, seconds: float
    ) -> bytes:
        connection.timeout = seconds + self._deadline
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        headers = {SECRET: self.address.secret, "Content-Type": JSON}
        connection.request("POST", f"/{verb}", body, headers)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status == http.client.OK:
            return data
        if answer.status == http.client.UNAUTHORIZED:
            raise NodeUnreachable("Another node answers under this address", where=self._where)
        raise error_of(decode_failure(data))
