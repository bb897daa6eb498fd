"""Who may call, and how much they may send."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.coordinator.settings import Settings
from anabranch.errors import AddressTaken, TokenInvalid, TokenMissing
from anabranch.http.app import Application
from anabranch.http.body import MOST_BODY_BYTES
from anabranch.http.server import Server
from anabranch.run import serve
from tests.http.little import Little
from tests.http.raw import Site

TOKEN = "".join(map(chr, range(ord("!"), ord("~") + 1)))
"""Everything that a token may be made of."""


@pytest.fixture
def guarded() -> Iterator[str]:
    """The address of a server that wants a token."""
    with Server(Application(Little().begin(), TOKEN), token=TOKEN) as server:
        yield server.address


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"],
)
def test_without_the_token_nothing_but_health_answers(guarded: str, header: str | None) -> None:
    site = Site(guarded)
    headers = {} if header is None else {"Authorization": header}
    for method, path in [("GET", "/status"), ("POST", "/shutdown"), ("GET", "/openapi.json")]:
        reply = site.call(method, path, headers=headers)
        reply.problem(401, "request.unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"
    assert site.call("GET", "/health", headers=headers).status == 200
    assert site.call("GET", "/nothing", headers=headers).status == 401


def test_with_the_token_all_answers(guarded: str) -> None:
    for kind in ("Bearer", "bearer"):
        reply = Site(guarded).call("GET", "/status", headers={"Authorization": f"{kind} {TOKEN}"})
        assert reply.status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1", ""])
def test_without_a_token_other_names_of_this_host_are_refused(site: Site, host: str) -> None:
    site.get("/status", Host=host).problem(403, "request.forbidden")


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:9", "[::1]:80"])
def test_without_a_token_names_of_loopback_are_taken(site: Site, host: str) -> None:
    assert site.get("/status", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example@127.0.0.1", "evil.example:80@localhost", "@localhost", "localhost/", "["),
        *("127.0.0.1/evil.example", "127.0.0.1?x", "127.0.0.1#x", "localhost\\evil", "[::1"),
        *("[::1]x", "localhost:80:80", "localhost:x", "local host", "\xe9.example"),
    ],
)
def test_a_host_that_is_no_host_is_refused_with_and_without_a_token(
    site: Site, guarded: str, host: str
) -> None:
    for each in (site, Site(guarded, TOKEN)):
        found = each.get("/status", Host=host).problem(400, "request.invalid")
        assert found["where"] == f"Host: {host}"
        each.get("/health", Host=host).problem(400, "request.invalid")


def test_without_a_token_pages_of_other_origins_are_refused(site: Site) -> None:
    site.post("/pause", Origin="https://evil.example").problem(403, "request.forbidden")
    site.post("/pause", Origin="null").problem(403, "request.forbidden")
    assert site.post("/pause", Origin=site.url).status == 200


def test_elsewhere_than_on_loopback_a_token_is_needed() -> None:
    for host in ("0.0.0.0", "::", "10.1.2.3"):
        with pytest.raises(TokenMissing):
            Server(Application(Little(), None), host)
    with Server(Application(Little().begin(), TOKEN), "0.0.0.0", token=TOKEN) as server:
        assert server.address.startswith("http://127.0.0.1:")
        assert Site(server.address).get("/health").status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "token", ["", " ", "two words", " t", "t\n", "t\x00", "Tök3n", "t\x7f", "\u2003"]
)
def test_a_token_that_no_header_carries_is_refused(host: str, token: str) -> None:
    with pytest.raises(TokenInvalid, match="printable ASCII"):
        Server(Application(Little(), token), host, token=token)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize(("token", "kind"), [("", TokenInvalid), (None, TokenMissing)])
def test_nothing_is_started_without_a_token_that_fits(
    tmp_path: Path, inline: bool, token: str | None, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        serve(
            "no_such_file.py:flow",
            directory=tmp_path / "state",
            settings=Settings(),
            inline=inline,
            host="0.0.0.0",
            token=token,
        )
    assert not (tmp_path / "state").exists()


def test_an_address_that_is_taken_is_refused() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(AddressTaken, match="port 0 picks a free one"),
    ):
        Server(Application(Little(), None), port=taken.getsockname()[1])
    with pytest.raises(AddressTaken):
        Server(Application(Little(), "t"), "no.such.host.invalid", token="t")


# ----------------------------------------------------------------------------------------- bodies


def test_a_large_body_is_refused_before_it_is_read(site: Site) -> None:
    site.call("POST", "/query", b"x" * (MOST_BODY_BYTES + 1)).problem(413, "request.too_large")
    with socket.create_connection(address(site), timeout=20) as raw:
        raw.sendall(head("/query", f"Content-Length: {10**18}"))
        assert raw.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_large_body_in_chunks_is_refused(site: Site) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with socket.create_connection(address(site), timeout=20) as raw:
        raw.sendall(head("/query", "Transfer-Encoding: chunked"))
        for _ in range(MOST_BODY_BYTES // 0x10000 + 1):
            raw.sendall(chunk)
        assert raw.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_the_largest_body_is_taken(site: Site) -> None:
    text = b'{"sql": "selec"}'
    padded = text + b" " * (MOST_BODY_BYTES - len(text))
    reply = site.call("POST", "/query", padded, {"Content-Type": "application/json"})
    reply.problem(400, "query.invalid")


def test_a_caller_that_goes_away_leaves_nothing_behind(site: Site) -> None:
    for _ in range(5):
        with socket.create_connection(address(site), timeout=20) as raw:
            raw.sendall(head("/query", "Content-Length: 100") + b"{")
            time.sleep(0.02)
    assert site.get("/status").status == 200


def test_bytes_that_are_not_http_do_not_stop_the_server(site: Site) -> None:
    for noise in (b"\x00" * 100, b"GET  HTTP/1.1", b"\x16\x03\x01", b"A" * 100_000):
        with socket.create_connection(address(site), timeout=20) as raw:
            raw.sendall(noise + b"\r\n\r\n")
            answer = raw.recv(4096)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b'"code":"request.invalid"' in answer
    assert site.get("/status").status == 200


def address(site: Site) -> tuple[str, int]:
    host, _, port = site.url.removeprefix("http://").partition(":")
    return host, int(port)


def head(path: str, *headers: str) -> bytes:
    kinds = ("Host: 127.0.0.1", "Content-Type: application/json")
    return "\r\n".join([f"POST {path} HTTP/1.1", *kinds, *headers, "", ""]).encode()
