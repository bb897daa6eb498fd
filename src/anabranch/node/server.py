"""The node's protocol over HTTP, on this host alone.

Operations
    ``POST /told``, ``/order``, ``/take``, ``/result`` and ``/query``; documents as in ``calls``.

Guarantees
    Only who knows the secret is answered; it is compared in constant time. A request that is too
    large is refused before it is read. Every error is a document with its code. Connections have
    deadlines and are bounded in number: strangers who hold many do not keep the coordinator out.

Failure
    Whatever is not an error of ours becomes a 500 with its type and text, and the node goes on.
"""

from __future__ import annotations

import hmac
import io
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.errors import AnabranchError, NodeError, RequestTooSlow, TooManyRequests
from anabranch.net.bounded_connection import BoundedConnection
from anabranch.net.http_thread import HttpThread
from anabranch.node.address import NodeAddress
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure, NodeReport
from anabranch.protocol.node_calls import (
    ARROW,
    JSON,
    LARGEST_CALL,
    LONGEST_POLL,
    SECRET,
    OrderCall,
    QueryCall,
    ReportCall,
    ResultCall,
    TakeCall,
    call_status,
    encode,
)

HOST = "127.0.0.1"
STOP_SECONDS = 1.0
_STATUS = {RequestTooSlow.code: 408, TooManyRequests.code: 503}

Call = TypeVar("Call", ReportCall, OrderCall, TakeCall, ResultCall, QueryCall)
Answer: TypeAlias = Callable[[Call], object]


class NodeConnection(BoundedConnection):
    """A connection whose errors are documents of the node's protocol."""

    def refusal(self, failure: Failure, place: str) -> Response:
        """The failure, as every other one."""
        return _refused(_STATUS.get(failure.code, 400), failure)


class NodeServer:
    """Serves a node until it is stopped."""

    def __init__(
        self, node: ThreadedNode, boot: str, *, options: str = "", largest: int = LARGEST_CALL
    ) -> None:
        """Take a free port; nobody is answered before ``start``."""
        self._largest = largest
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind((HOST, 0))
        port = int(self._socket.getsockname()[1])
        secret = secrets.token_hex(32)
        self.address = NodeAddress(HOST, port, os.getpid(), boot, secret, options)
        self._guard = threading.Lock()
        self._under_way = 0
        self._last_call = time.monotonic()
        route = self._route
        routes = [
            route("told", ReportCall, partial(_report, node)),
            route("order", OrderCall, lambda c: node.order(c.leader, c.order)),
            route("take", TakeCall, lambda c: node.take(c.leader, c.step)),
            route("result", ResultCall, lambda c: node.result(c.leader, c.step, c.revision)),
            route("query", QueryCall, lambda c: node.query(c.sql, c.rows, c.bytes, c.seconds)),
        ]
        self._thread = HttpThread(
            Starlette(routes=routes),
            self._socket,
            NodeConnection,
            lifespan=False,
            stop_seconds=STOP_SECONDS,
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        self._thread.stop()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._thread.connections

    def idle_seconds(self) -> float:
        """How long nobody who knows the secret has called."""
        with self._guard:
            return 0.0 if self._under_way else time.monotonic() - self._last_call

    def _route(self, verb: str, kind: type[Call], answer: Answer[Call]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await self._answered(request, kind, answer)

        return Route(f"/{verb}", endpoint, methods=["POST"])

    async def _answered(self, request: Request, kind: type[Call], answer: Answer[Call]) -> Response:
        given = request.headers.get(SECRET, "").encode()
        if not hmac.compare_digest(given, self.address.secret.encode()):
            return Response(status_code=401, headers={"Connection": "close"})
        with self._guard:
            self._under_way += 1
        try:
            body = await _bounded(request, self._largest)
            if body is None:
                too_large = f"The call has more than {self._largest} bytes"
                return _refused(413, Failure(NodeError.code, too_large))
            call = msgspec.json.decode(body, type=kind)
            return await run_in_threadpool(lambda: _encoded(answer(call)))
        except AnabranchError as error:
            return _refused(call_status(error), failure_of(error))
        except (msgspec.DecodeError, ValueError) as error:
            return _refused(400, Failure(NodeError.code, str(error)))
        except Exception as error:
            return _refused(500, failure_of(error))
        finally:
            with self._guard:
                self._under_way -= 1
                self._last_call = time.monotonic()


def _report(node: ThreadedNode, call: ReportCall) -> NodeReport:
    return node.report(call.leader, call.seen, min(call.seconds, LONGEST_POLL))


async def _bounded(request: Request, largest: int) -> bytes | None:
    """The whole body; None when it is larger than that, of which no more is read."""
    if int(request.headers.get("content-length") or 0) > largest:
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > largest:
            return None
    return bytes(body)


def _encoded(answer: object) -> Response:
    if not isinstance(answer, pa.Table):
        return Response(encode(answer), media_type=JSON)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, answer.schema) as writer:
        writer.write_table(answer)
    return Response(out.getvalue(), media_type=ARROW)


def _refused(status: int, failure: Failure) -> Response:
    return Response(encode(failure), status_code=status, media_type=JSON)
