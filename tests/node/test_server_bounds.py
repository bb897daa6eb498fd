"""The node's server and strangers who hold connections to it without calling."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

from anabranch.net import bounded_connection
from anabranch.node.client import HttpNode
from anabranch.node.server import NodeServer
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.node import Closed, Failure
from anabranch.protocol.node_calls import SECRET, ReportCall, encode
from tests.http.raw import until
from tests.node.core_shop import CoreShop

HEAD = b"POST /told HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NodeServer]:
    node = ThreadedNode(CoreShop(tmp_path).new_core())
    server = NodeServer(node, "boot")
    server.start()
    yield server
    server.stop()
    node.shut()


def connected(server: NodeServer) -> socket.socket:
    return socket.create_connection((server.address.host, server.address.port), 20)


def stranger(server: NodeServer) -> socket.socket:
    """One who begins a request and does not go on; he may be thrown out at once."""
    made = connected(server)
    with suppress(OSError):
        made.sendall(HEAD + b"X-Slow: ")
    return made


def everything(raw: socket.socket) -> bytes:
    """What comes until the server closes."""
    found = b""
    with suppress(ConnectionResetError):
        while part := raw.recv(1 << 16):
            found += part
    return found


def refused(answer: bytes) -> tuple[bytes, str]:
    """The status line's number and the code of the document."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return head.split()[1], msgspec.json.decode(body, type=Failure).code


@pytest.mark.parametrize("head", [b"P", HEAD, HEAD + b"X-Slow: aaaa"])
def test_a_head_that_does_not_come_is_not_waited_for(
    server: NodeServer, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(bounded_connection, "HEAD_SECONDS", 0.3)
    with connected(server) as raw:
        raw.sendall(head)
        assert refused(everything(raw)) == (b"408", "request.too_slow")


def test_a_body_that_does_not_come_is_not_waited_for_even_from_who_knows_the_secret(
    server: NodeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_connection, "BODY_SECONDS", 0.3)
    secret = f"{SECRET}: {server.address.secret}\r\n".encode()
    with connected(server) as raw:
        raw.sendall(HEAD + secret + b"Content-Length: 100\r\n\r\n{")
        assert refused(everything(raw)) == (b"408", "request.too_slow")
    assert server.idle_seconds() < 20, "nobody seems to call any more"


def test_what_is_no_http_is_refused(server: NodeServer) -> None:
    with connected(server) as raw:
        raw.sendall(b"\x00\x01\x02 what is this\r\n\r\n")
        assert refused(everything(raw)) == (b"400", "request.invalid")


def test_the_coordinator_gets_in_however_many_hold_connections(server: NodeServer) -> None:
    most, node = bounded_connection.MOST_PER_CLIENT, HttpNode(server.address)
    assert node.report(1, 0, 0).state == Closed()
    with ExitStack() as held:
        for _ in range(2 * most):
            held.enter_context(stranger(server))
        until(lambda: server.connections >= most)
        # Over the connection that it has, if that was not closed, and over a new one.
        for each in (node, HttpNode(server.address)):
            assert each.report(1, 0, 0).state == Closed()
            each.close()
        assert server.connections <= most


def test_a_call_that_waits_is_not_given_up_for_strangers(
    server: NodeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_connection, "MOST_PER_CLIENT", 4)
    secret = f"{SECRET}: {server.address.secret}\r\n".encode()
    node = HttpNode(server.address)
    version = node.report(1, 0, 0).version
    node.close()
    call = encode(ReportCall(1, version, 1.0))
    with ExitStack() as held, connected(server) as raw:
        raw.sendall(HEAD + secret + f"Content-Length: {len(call)}\r\n\r\n".encode() + call)
        until(lambda: server.idle_seconds() == 0.0)
        for _ in range(8):
            held.enter_context(stranger(server))
        assert raw.recv(12) == b"HTTP/1.1 200"


def test_who_does_not_know_the_secret_has_his_connection_closed(server: NodeServer) -> None:
    with connected(server) as raw:
        raw.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
        answer = everything(raw).lower()
        assert answer.startswith(b"http/1.1 401 ")
        assert b"connection: close" in answer
