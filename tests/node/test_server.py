"""The node's protocol over real HTTP on this host, and what it refuses."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from anabranch.errors import Fenced, NodeUnreachable, QueryFailed, UnknownOperator
from anabranch.node.address import (
    NodeAddress,
    read_node_address,
    remove_node_address,
    write_node_address,
)
from anabranch.node.client import HttpNode
from anabranch.node.server import NodeServer
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.node import Closed, CloseOrder, Failure, Open, PausedSources, SourcesOrder
from anabranch.protocol.node_calls import SECRET, ReportCall, encode
from anabranch.task.queries import QueryLimits
from anabranch.task.state_reader import Snapshot, read_table
from tests.node.core_shop import CoreShop
from tests.node.led import Led


@dataclass
class TableQueries:
    """Answers a query that is the name of an operator with its state."""

    store: Path

    def run(self, sql: str, committed: object, limits: QueryLimits) -> pa.Table:
        snapshot: Snapshot = committed()  # type: ignore[operator]
        return read_table(snapshot.view(sql), self.store).slice(0, limits.rows)

    def frame(self, snapshot: Snapshot, operator: str) -> Any:
        raise AssertionError("frames do not go over HTTP")


@pytest.fixture
def shop(tmp_path: Path) -> CoreShop:
    return CoreShop(tmp_path)


@pytest.fixture
def server(shop: CoreShop) -> Iterator[NodeServer]:
    node = ThreadedNode(shop.new_core(), TableQueries(shop.store))
    server = NodeServer(node, "boot", largest=1 << 20)
    server.start()
    yield server
    server.stop()
    node.shut()


@pytest.fixture
def node(server: NodeServer) -> Iterator[HttpNode]:
    node = HttpNode(server.address)
    yield node
    node.close()


def post(server: NodeServer, verb: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    address = server.address
    connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    connection.request("POST", f"/{verb}", body, headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


def test_a_run_over_http_gives_what_the_story_gives(shop: CoreShop, node: HttpNode) -> None:
    led = Led(shop, node)
    led.open()
    led.run_all()
    shop.check()


def test_what_is_told_over_http_is_what_is_told_inline(
    shop: CoreShop, server: NodeServer, node: HttpNode
) -> None:
    led = Led(shop, node)
    led.open()
    led.one_step()
    led.until(lambda report: report.offer is not None and report.offer.rows)
    led.until(lambda report: set(report.published.values()) == {1})
    assert node.report(1, 0, 0) == shop.core.report(1)
    assert node.result(1, 1, 0) == shop.core.result(1, 1, 0)
    taken = node.take(1, 2)
    assert [(bytes(i.position), i.slices) for i in taken] == [
        (bytes(i.position), i.slices) for i in shop.core.take(1, 2)
    ]


def test_errors_travel_with_their_code(node: HttpNode) -> None:
    assert node.report(7, 0, 0).leader == 7
    with pytest.raises(Fenced, match="leader 7 has taken over"):
        node.order(6, CloseOrder(exit=True))
    with pytest.raises(NodeUnreachable, match="no offer"):
        node.take(7, 1)
    with pytest.raises(NodeUnreachable, match="no result"):
        node.result(7, 1, 0)
    assert node.report(7, 0, 0).state == Closed()


def test_a_query_gives_the_rows_of_the_last_committed_step(shop: CoreShop, node: HttpNode) -> None:
    led = Led(shop, node)
    led.open()
    led.one_step()
    rows = node.query("times", 100, 1 << 20, 10).to_pylist()
    assert {(row["times"], row["n"]) for row in rows} == {(1, 3), (2, 1)}
    assert node.query("times", 1, 1 << 20, 10).num_rows == 1
    with pytest.raises(UnknownOperator) as caught:
        node.query("nothing", 1, 1, 10)
    assert caught.value.do == "There are: seen, times."


def test_a_node_without_queries_says_so(shop: CoreShop) -> None:
    node = ThreadedNode(shop.new_core())
    with pytest.raises(QueryFailed):
        node.query("select 1", 1, 1, 1)
    node.shut()


@pytest.mark.parametrize("secret", ["", "wrong", "geheimnis-ä"])
def test_nobody_is_answered_without_the_secret(server: NodeServer, secret: str) -> None:
    header = {SECRET: secret.encode().decode("latin-1")} if secret else {}
    status, data = post(server, "told", encode(ReportCall(1, 0, 0)), **header)
    assert (status, data) == (401, b"")


def test_a_call_that_is_too_large_or_makes_no_sense_is_refused(server: NodeServer) -> None:
    secret = {SECRET: server.address.secret}
    status, data = post(server, "order", b" " * ((1 << 20) + 1), **secret)
    assert (status, msgspec.json.decode(data, type=Failure).code) == (413, "node")
    for body in (b"", b"{}", b"\xff", b'{"leader": 1, "order": {"type": "dance"}}'):
        status, data = post(server, "order", body, **secret)
        assert (status, msgspec.json.decode(data, type=Failure).code) == (400, "node")
    assert post(server, "dance", b"", **secret)[0] == 404


def test_callers_that_do_not_know_the_secret_do_not_keep_a_node_alive(server: NodeServer) -> None:
    before = server.idle_seconds()
    post(server, "told", encode(ReportCall(1, 0, 0)))
    assert server.idle_seconds() >= before


def test_a_node_that_is_gone_is_unreachable(shop: CoreShop, tmp_path: Path) -> None:
    inline = ThreadedNode(shop.new_core())
    server = NodeServer(inline, "boot")
    server.start()
    node = HttpNode(server.address, deadline=5)
    assert node.report(1, 0, 0).state == Closed()
    server.stop()
    inline.shut()
    with pytest.raises(NodeUnreachable, match="does not answer"):
        node.report(1, 0, 0)


def test_a_node_that_does_not_answer_in_time_is_unreachable() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = NodeAddress("127.0.0.1", deaf.getsockname()[1], 1, "boot", "secret")
        with pytest.raises(NodeUnreachable, match="TimeoutError"):
            HttpNode(address, deadline=0.2).report(1, 0, 0)


def test_another_node_under_the_address_is_not_taken_for_ours(server: NodeServer) -> None:
    stranger = msgspec.structs.replace(server.address, secret="another")
    node = HttpNode(stranger)
    with pytest.raises(NodeUnreachable, match="Another node"):
        node.report(1, 0, 0)
    node.close()


def test_a_kept_connection_that_died_is_made_anew(server: NodeServer, node: HttpNode) -> None:
    node.report(1, 0, 0)
    node._own.connection.sock.shutdown(socket.SHUT_RDWR)
    assert node.report(1, 0, 0).state == Closed()


def test_the_address_is_the_owners_alone_and_taken_back_by_its_node_only(tmp_path: Path) -> None:
    assert read_node_address(tmp_path) is None
    mine = NodeAddress("127.0.0.1", 1, 2, "mine", "secret")
    write_node_address(tmp_path, mine)
    assert read_node_address(tmp_path) == mine
    assert (tmp_path / "node.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["node.json"]
    remove_node_address(tmp_path, "another")
    assert read_node_address(tmp_path) == mine
    remove_node_address(tmp_path, "mine")
    assert read_node_address(tmp_path) is None
    (tmp_path / "node.json").write_text("torn {")
    assert read_node_address(tmp_path) is None


def test_a_rewound_order_survives_the_way(shop: CoreShop, node: HttpNode) -> None:
    led = Led(shop, node)
    led.open()
    led.one_step()
    led.until(lambda report: set(report.published.values()) == {1})
    shop.journal = []
    report = led.open(rewound=0, published={}, outputs=())
    assert report.state == Open(0)
    assert shop.rows.steps() == {}


def test_paused_sources_survive_the_way(shop: CoreShop, node: HttpNode) -> None:
    led = Led(shop, node)
    assert led.open(paused=PausedSources(1, ("orders",))).paused == PausedSources(1, ("orders",))
    node.order(1, SourcesOrder(PausedSources(2)))
    assert led.until(lambda report: report.offer.rows).paused == PausedSources(2)
