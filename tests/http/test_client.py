"""The client and the address in the directory, against a real server."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.errors import (
    CoordinatorUnreachable,
    InvalidQuery,
    OperationRefused,
    QueryTimeout,
    StoreUnavailable,
    Unauthorized,
)
from anabranch.http.address import Address, read_address, remove_address, write_address
from anabranch.http.app import Application
from anabranch.http.client import Client
from anabranch.http.schemas import QueryRequest
from anabranch.http.server import Server
from tests.http.little import Little
from tests.http.raw import until


@contextmanager
def served(little: Little, token: str | None = None) -> Iterator[Client]:
    with Server(Application(little.begin(), token)) as server:
        yield Client(server.address, token)


def test_every_call(tmp_path: Path) -> None:
    little = Little()
    with served(little, "token") as direct:
        write_address(tmp_path, Address(direct.url, os.getpid(), 3, "token"))
        client = Client.of_directory(tmp_path)
        until(lambda: client.status().step >= 3)
        paused = client.pause()
        assert (paused.operation, paused.done) == ("pause", True)
        assert client.status() == little.status()
        kept = client.checkpoint().step
        assert kept == little.step
        assert [one.step for one in client.checkpoints().checkpoints] == [kept]
        assert client.pause("numbers").status.sources[0].paused
        assert not client.start("numbers").status.sources[0].paused
        assert client.start().done
        until(lambda: client.status().step > (kept or 0))
        with pytest.raises(OperationRefused, match="cannot take it back"):
            client.load(kept or 0)
        assert client.load(kept or 0, accept_duplicates=True).step == kept
        one_step = QueryRequest("select step, rows from totals where step = 2", rows=5)
        assert b'"rows":[[2,20]]' in client.query(one_step)
        assert client.shutdown(at_once=True).status.phase == "stopped"


def test_errors_are_of_the_class_they_had() -> None:
    with served(Little(), "token") as client:
        with pytest.raises(InvalidQuery, match="selec"):
            client.query(QueryRequest("selec"))
        slow = "with recursive n(i) as (select 1 union all select i + 1 from n) select * from n"
        with pytest.raises(QueryTimeout):
            client.query(QueryRequest(f"select count(*) from ({slow})", seconds=0.2))
        with pytest.raises(Unauthorized):
            Client(client.url, "other").status()
        with pytest.raises(Unauthorized):
            Client(client.url).status()


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(CoordinatorUnreachable, match="No pipeline runs"):
        Client.of_directory(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    write_address(tmp_path, Address(f"http://127.0.0.1:{port}", 4711, 1))
    with pytest.raises(CoordinatorUnreachable, match="its process was 4711"):
        Client.of_directory(tmp_path).status()
    (tmp_path / "coordinator.json").write_bytes(b'{"url"')
    with pytest.raises(CoordinatorUnreachable, match="Cannot read the coordinator"):
        Client.of_directory(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        *("", "orders.state", "ftp://127.0.0.1", "http://"),
        *("http://127.0.0.1:port", "http://127.0.0.1:99999", "http://["),
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(CoordinatorUnreachable, match="not the address of a coordinator"):
        Client(url).status()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
)
def test_somebody_else_answers(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(CoordinatorUnreachable):
            Client(f"http://127.0.0.1:{server.getsockname()[1]}").status()
        thread.join(10)


# ---------------------------------------------------------------------------------------- address


def test_the_address_is_for_its_owner_alone_and_replaced_whole(tmp_path: Path) -> None:
    first, second = Address("http://a:1", 1, 1, "x"), Address("http://b:2", 2, 2)
    write_address(tmp_path, first)
    assert stat.S_IMODE((tmp_path / "coordinator.json").stat().st_mode) == 0o600
    write_address(tmp_path, second)
    assert read_address(tmp_path) == second
    assert os.listdir(tmp_path) == ["coordinator.json"]


def test_the_address_of_another_coordinator_is_left_alone(tmp_path: Path) -> None:
    first, second = Address("http://a:1", 1, 1), Address("http://b:2", 2, 2)
    write_address(tmp_path, second)
    remove_address(tmp_path, first)
    assert read_address(tmp_path) == second
    remove_address(tmp_path, second)
    assert os.listdir(tmp_path) == []
    remove_address(tmp_path, second)


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        write_address(tmp_path / "gone", Address("http://a:1", 1, 1))
