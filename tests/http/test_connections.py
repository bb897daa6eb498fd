"""How long a connection may keep the server waiting, and how many there may be."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from anabranch.http import feed
from anabranch.http.app import Application
from anabranch.http.app_context import AppContext
from anabranch.http.callers import Callers
from anabranch.http.server import Server
from anabranch.net import bounded_connection as connection
from tests.http.little import Little
from tests.http.raw import Site, until

HEAD = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LINES = 20_000
LARGE = f"""
with recursive n(i) as (select 1 union all select i + 1 from n where i < {LINES})
select printf('line %0400d', i) as line from n
"""
"""A result that is larger than the buffers of both sides."""


@contextmanager
def connected(site: Site, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    host, _, port = site.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 20, (source, 0)) as made:
        yield made


def everything(raw: socket.socket) -> bytes:
    """What comes until the server closes."""
    found = b""
    with suppress(ConnectionResetError):
        while part := raw.recv(1 << 20):
            found += part
    return found


def problem(answer: bytes) -> tuple[int, str, str]:
    """Status, code and place of an answer as it comes over the wire."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    found = json.loads(body)
    assert found["detail"]
    assert found["do"]
    assert head.startswith(f"HTTP/1.1 {found['status']} ".encode())
    return found["status"], found["code"], found["where"]


# -------------------------------------------------------------------------------------- deadlines


@pytest.mark.parametrize("head", [b"G", HEAD, HEAD + b"X-Slow: aaaa"])
def test_a_head_that_does_not_come_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    with connected(site) as raw:
        raw.sendall(head)
        assert problem(everything(raw)) == (408, "request.too_slow", "the head of a request")


def test_bytes_do_not_move_the_deadline_of_a_head(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    with connected(site) as raw:
        raw.sendall(HEAD + b"X-Slow: ")
        raw.settimeout(0.05)
        for _ in range(400):
            raw.sendall(b"a")
            try:
                found = raw.recv(4096)
            except TimeoutError:
                continue
            assert problem(found)[0] == 408
            return
    pytest.fail("it was waited for")


def test_a_connection_on_which_nothing_is_called_is_closed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    with connected(site) as raw:
        assert everything(raw) == b""
    with connected(site) as raw:
        raw.sendall(HEAD + b"\r\n")
        assert everything(raw).count(b"HTTP/1.1 ") == 1


def test_each_request_of_a_connection_has_its_own_deadline(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 2.0)
    with closing(site.connection()) as kept:
        for _ in range(3):
            kept.request("GET", "/events?seconds=1")
            assert kept.getresponse().read()


def test_a_body_that_does_not_come_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.2)
    for path in ("/query", "/load", "/scale"):
        with connected(site) as raw:
            raw.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode())
            raw.sendall(b"Content-Length: 100\r\n\r\n{")
            assert problem(everything(raw)) == (408, "request.too_slow", f"POST {path}")
    assert site.get("/status").status == 200


def test_a_body_that_no_call_wants_is_not_waited_for_either(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.2)
    with connected(site) as raw:
        raw.sendall(b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        answer = everything(raw)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1 ") == 1


def test_a_body_that_is_no_http_is_refused(site: Site) -> None:
    with connected(site) as raw:
        raw.sendall(
            b"POST /query HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        raw.sendall(b"not a size\r\n")
        assert problem(everything(raw)) == (400, "request.invalid", "POST /query")


def test_an_answer_that_is_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED_SECONDS", 0.2)
    body = json.dumps({"sql": LARGE, "format": "text"})
    with (
        Server(Application(Little().begin(), None)) as server,
        connected(Site(server.address)) as raw,
    ):
        raw.sendall(b"POST /query HTTP/1.1\r\nHost: localhost\r\n")
        raw.sendall(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        until(lambda: server.connections == 1)
        until(lambda: server.connections == 0)
        answer = everything(raw)
    head, _, content = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    assert 0 < len(content) < int(length[1])


def test_an_answer_that_is_read_slowly_is_sent_to_its_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALLED_SECONDS", 0.5)
    body = json.dumps({"sql": LARGE, "format": "text"})
    with connected(site) as raw:
        raw.sendall(b"POST /query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")
        raw.sendall(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        found = b""
        while part := raw.recv(1 << 18):
            found += part
            time.sleep(0.02)
    assert found.count(b"line 0") == LINES


# ----------------------------------------------------------------------------------------- bounds


def test_who_calls_gets_in_however_many_hold_connections(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_PER_CLIENT", 5)
    with ExitStack() as held:
        slow = [held.enter_context(connected(site)) for _ in range(5)]
        for each in slow:
            each.sendall(HEAD)
        until(lambda: site.get("/status").status == 200)
        for method, path in (("POST", "/pause"), ("GET", "/health"), ("POST", "/start")):
            assert site.call(method, path).status == 200
        # The one that has waited longest made room.
        assert everything(slow[0]) == b""
        slow[-1].sendall(b"\r\n")
        assert slow[-1].recv(12) == b"HTTP/1.1 200"


def test_of_many_clients_the_one_with_most_connections_makes_room(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_PER_CLIENT", 4)
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 6)
    with ExitStack() as held:
        first = held.enter_context(connected(site, "127.0.0.2"))
        first.sendall(HEAD)
        many = [held.enter_context(connected(site, "127.0.0.3")) for _ in range(4)]
        for each in many:
            each.sendall(HEAD)
        others = [held.enter_context(connected(site, f"127.0.0.{n}")) for n in (4, 5)]
        assert everything(many[0]) == b""
        for each in (first, many[-1]):
            each.sendall(b"\r\n")
            assert each.recv(12) == b"HTTP/1.1 200"
        assert len(others) == 2


def test_a_call_in_progress_is_not_given_up_for_another(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_PER_CLIENT", 1)
    with closing(site.connection()) as watching:
        watching.request("GET", "/events")
        answer = watching.getresponse()
        answer.readline()
        with connected(site) as refused:
            found = problem(everything(refused))
        assert found == (503, "request.too_many", "the head of a request")
        assert answer.readline()


def test_an_answer_that_nobody_reads_is_given_up_for_a_call(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_PER_CLIENT", 1)
    body = json.dumps({"sql": LARGE, "format": "text"})
    with connected(site) as raw:
        raw.sendall(b"POST /query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")
        raw.sendall(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert raw.recv(12) == b"HTTP/1.1 200"
        assert site.get("/status").status == 200


def test_calls_in_progress_leave_room_for_connections() -> None:
    context = Application(Little(), None).context
    assert isinstance(context, AppContext)
    fields = (getattr(context, name) for name in AppContext.__slots__)
    calls = sum(each.most for each in fields if isinstance(each, Callers))
    assert calls + feed.MOST_WATCHERS < connection.MOST_PER_CLIENT <= connection.MOST_CONNECTIONS


def test_control_answers_while_as_many_wait_as_may() -> None:
    little = Little(pace=0.001, file_seconds=1.0).begin()
    with Server(Application(little, None)) as server:
        site = Site(server.address)
        until(lambda: little.step > 1)
        for _ in range(40):
            threading.Thread(
                target=site.post, args=("/checkpoint?seconds=20",), daemon=True
            ).start()
        until(lambda: site.post("/checkpoint?seconds=0").status == 503)
        calls = (("GET", "/status"), ("GET", "/health"), ("POST", "/pause"), ("POST", "/shutdown"))
        assert [site.call(*each).status for each in calls] == [200] * 4
        little.file_seconds = 0.0  # the server would wait for them


@pytest.mark.parametrize(("limits", "soft"), [("-S", 2048), ("", 300)])
def test_connections_do_not_use_up_the_descriptors(limits: str, soft: int) -> None:
    program = (
        "import resource; from anabranch.http.app import Application; "
        "from anabranch.http.server import Server; from tests.http.little import Little; "
        "Server(Application(Little(), None)); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    shell = f'ulimit {limits} -n 300 && exec "$0" -c "$1"'
    ran = subprocess.run(
        ["sh", "-c", shell, sys.executable, program], capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == [str(soft)], ran.stderr


def test_slow_clients_do_not_lock_others_out_of_a_real_process() -> None:
    command = [sys.executable, "-m", "tests.http.slow_clients"]
    options = ["--connections", "300", "--seconds", "3", "--pause", "0.5"]
    ran = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    figures = json.loads(ran.stdout)
    assert figures["opened"] >= 300
    assert figures["closed"] > 0
