"""The node's protocol over HTTP, on this host alone.

Operations
    ``POST /told``, ``/order``, ``/take``, ``/result`` and ``/query``; documents as in ``calls``.

Guarantees
    Only who knows the secret is answered; it is compared in constant time. A request that is too
    large is refused before it is read. Every error is a document with its code.

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
from typing import TypeVar

import msgspec
import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from anabranch.errors import AnabranchError, NodeError
from anabranch.node.address import NodeAddress
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure
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
START_SECONDS = 30.0

Call = TypeVar("Call", ReportCall, OrderCall, TakeCall, ResultCall, QueryCall)


class NodeServer:
    """Serves a node until it is stopped."""

    def __init__(
        self, node: ThreadedNode, boot: str, *, options: str = "", largest: int = LARGEST_CALL
    ) -> None:
        """Take a free port; nobody is answered before ``start``."""
        self._node = node
        self._largest = largest
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind((HOST, 0))
        port = int(self._socket.getsockname()[1])
        secret = secrets.token_hex(32)
        self.address = NodeAddress(HOST, port, os.getpid(), boot, secret, options)
        self._guard = threading.Lock()
        self._under_way = 0
        self._last_call = time.monotonic()
        config = uvicorn.Config(
            self._application(),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=600,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="anabranch-http", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        late = time.monotonic() + START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < late:
            time.sleep(0.01)

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.should_exit = True
        self._thread.join(START_SECONDS)
        self._socket.close()

    def idle_seconds(self) -> float:
        """How long nobody who knows the secret has called."""
        with self._guard:
            return 0.0 if self._under_way else time.monotonic() - self._last_call

    def _application(self) -> FastAPI:
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

        @app.post("/told")
        async def report(request: Request) -> Response:
            return await self._answered(request, ReportCall, self._told)

        @app.post("/order")
        async def order(request: Request) -> Response:
            return await self._answered(request, OrderCall, self._order)

        @app.post("/take")
        async def take(request: Request) -> Response:
            return await self._answered(request, TakeCall, self._take)

        @app.post("/result")
        async def result(request: Request) -> Response:
            return await self._answered(request, ResultCall, self._result)

        @app.post("/query")
        async def query(request: Request) -> Response:
            return await self._answered(request, QueryCall, self._query)

        return app

    def _told(self, call: ReportCall) -> tuple[bytes, str]:
        seconds = min(call.seconds, LONGEST_POLL)
        return encode(self._node.report(call.leader, call.seen, seconds)), JSON

    def _order(self, call: OrderCall) -> tuple[bytes, str]:
        self._node.order(call.leader, call.order)
        return b"", JSON

    def _take(self, call: TakeCall) -> tuple[bytes, str]:
        return encode(self._node.take(call.leader, call.step)), JSON

    def _result(self, call: ResultCall) -> tuple[bytes, str]:
        return encode(self._node.result(call.leader, call.step, call.revision)), JSON

    def _query(self, call: QueryCall) -> tuple[bytes, str]:
        table = self._node.query(call.sql, call.rows, call.bytes, call.seconds)
        out = io.BytesIO()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return out.getvalue(), ARROW

    async def _answered(
        self, request: Request, kind: type[Call], answer: Callable[[Call], tuple[bytes, str]]
    ) -> Response:
        given = request.headers.get(SECRET, "").encode()
        if not hmac.compare_digest(given, self.address.secret.encode()):
            return Response(status_code=401)
        with self._guard:
            self._under_way += 1
        try:
            return await self._carried_out(request, kind, answer)
        finally:
            with self._guard:
                self._under_way -= 1
                self._last_call = time.monotonic()

    async def _carried_out(
        self, request: Request, kind: type[Call], answer: Callable[[Call], tuple[bytes, str]]
    ) -> Response:
        body = await _bounded(request, self._largest)
        if body is None:
            too_large = f"The call has more than {self._largest} bytes"
            return _refused(413, Failure(NodeError.code, too_large))
        try:
            call = msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, ValueError) as error:
            return _refused(400, Failure(NodeError.code, str(error)))
        try:
            data, media = await run_in_threadpool(answer, call)
        except AnabranchError as error:
            return _refused(call_status(error), failure_of(error))
        except ValueError as error:
            return _refused(400, Failure(NodeError.code, str(error)))
        except Exception as error:
            return _refused(500, failure_of(error))
        return Response(data, media_type=media)


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


def _refused(status: int, failure: Failure) -> Response:
    return Response(encode(failure), status_code=status, media_type=JSON)
