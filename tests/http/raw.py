"""HTTP calls by the standard library alone: what comes over the wire, as it comes."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self, status: int, code: str) -> dict[str, Any]:
        """The problem document that this answer must be."""
        assert (self.status, self.headers["content-type"]) == (status, "application/problem+json")
        found: dict[str, Any] = self.json()
        assert (found["status"], found["code"]) == (status, code)
        assert all(found[name] for name in ("type", "title", "detail", "where", "do"))
        return found


@dataclass(frozen=True)
class Site:
    """A server that is called."""

    url: str
    token: str | None = None

    def connection(self, timeout: float = 30) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        given = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        with closing(self.connection()) as connection:
            connection.request(method, path, body, {**given, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())

    def get(self, path: str, **headers: str) -> Reply:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, value: Any = None, **headers: str) -> Reply:
        body = None if value is None else json.dumps(value).encode()
        given = {} if value is None else {"Content-Type": "application/json"}
        return self.call("POST", path, body, {**given, **headers})


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something that must come."""
    late = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < late, "it did not come"
        time.sleep(0.005)
