"""An HTTP client of a coordinator in another process, built on the standard library.

Every error is one of ``errors``; those of the coordinator keep their class.
"""

from __future__ import annotations

import http.client
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from anabranch.errors import AnabranchError, CoordinatorUnreachable
from anabranch.http.address import read_address
from anabranch.http.schemas import (
    LONGEST_SECONDS,
    Checkpoints,
    LoadRequest,
    OperationAnswer,
    ProblemDocument,
    ProfileAnswer,
    QueryRequest,
    RebalanceRequest,
    Rescales,
    ScaleAnswer,
    ScaleRequest,
)
from anabranch.protocol.failures import error_of
from anabranch.protocol.node import Failure
from anabranch.protocol.status import Status
from anabranch.records.profiles import ProfileKind, ProfileRequest

AT_ONCE_SECONDS = 10.0
"""How long to wait for an immediate answer."""

MARGIN_SECONDS = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Client:
    """Calls one coordinator, with a connection per call. Any thread may use it."""

    url: str
    token: str | None = None
    pid: int | None = None

    @classmethod
    def of_directory(cls, directory: Path) -> Client:
        """A client of the coordinator in a directory; ``CoordinatorUnreachable``."""
        address = read_address(directory)
        return cls(address.url, address.token, address.pid)

    def status(self) -> Status:
        """What the pipeline is doing."""
        return self._get("/status", Status)

    def checkpoints(self) -> Checkpoints:
        """The kept checkpoints."""
        return self._get("/checkpoints", Checkpoints)

    def start(self, source: str | None = None) -> OperationAnswer:
        """Resume the pipeline or one source after a pause."""
        return self._post(f"{_endpoint(source)}/start", OperationAnswer)

    def pause(self, source: str | None = None) -> OperationAnswer:
        """Pause the pipeline after the current step, or pause one source."""
        return self._post(f"{_endpoint(source)}/pause", OperationAnswer)

    def checkpoint(self, seconds: float = 30.0) -> OperationAnswer:
        """Keep the last committed step as a checkpoint; wait until it is durable."""
        return self._post("/checkpoint", OperationAnswer, seconds)

    def shutdown(
        self, *, at_once: bool = False, wait: bool = True, seconds: float = 30.0
    ) -> OperationAnswer:
        """End the pipeline; wait until it has ended."""
        return self._post("/shutdown", OperationAnswer, seconds, at_once=at_once, wait=wait)

    def load(
        self, step: int, *, accept_duplicates: bool = False, seconds: float = 30.0
    ) -> OperationAnswer:
        """Go back to a kept checkpoint; wait until the new branch is durable."""
        return self._post("/load", OperationAnswer, seconds, LoadRequest(step, accept_duplicates))

    def rescales(self) -> Rescales:
        """The current rescale and recent finished ones."""
        return self._get("/scale", Rescales)

    def scale(self, asked: ScaleRequest, seconds: float = 30.0) -> ScaleAnswer:
        """Change the number of workers; wait until the request is durable."""
        return self._post("/scale", ScaleAnswer, seconds, asked)

    def rebalance(self, asked: RebalanceRequest, seconds: float = 30.0) -> ScaleAnswer:
        """Redistribute the bins; wait until the request is durable."""
        return self._post("/rebalance", ScaleAnswer, seconds, asked)

    def scale_pause(self, seconds: float = 30.0) -> ScaleAnswer:
        """Move no more bins until ``scale_resume``."""
        return self._post("/scale/pause", ScaleAnswer, seconds)

    def scale_resume(self, seconds: float = 30.0) -> ScaleAnswer:
        """Resume a paused rescale."""
        return self._post("/scale/resume", ScaleAnswer, seconds)

    def scale_cancel(self, *, roll_back: bool = False, seconds: float = 30.0) -> ScaleAnswer:
        """Stop a rescale and leave the bins where they are, or roll it back."""
        return self._post("/scale/cancel", ScaleAnswer, seconds, roll_back=roll_back)

    def profile(self, request: ProfileRequest, seconds: float = 30.0) -> ProfileAnswer:
        """Profile a worker in the next step; wait for that step."""
        path = "/heap_profile" if request.kind is ProfileKind.HEAP else "/dump_profile"
        worker, region = request.worker, request.region
        return self._post(path, ProfileAnswer, seconds, worker=worker, region=region)

    def query(self, asked: QueryRequest) -> bytes:
        """The rows of a query in the format that it names, JSON by default."""
        seconds = LONGEST_SECONDS if asked.seconds is None else asked.seconds
        return self._call("POST", "/query", seconds, asked)

    def _get(self, path: str, kind: type[T]) -> T:
        return _decode(self._call("GET", path), kind)

    def _post(
        self,
        path: str,
        kind: type[T],
        seconds: float | None = None,
        body: msgspec.Struct | None = None,
        **given: str | float | None,
    ) -> T:
        wait = AT_ONCE_SECONDS if seconds is None else seconds
        return _decode(self._call("POST", _path(path, seconds=seconds, **given), wait, body), kind)

    def _call(
        self,
        method: str,
        path: str,
        seconds: float = AT_ONCE_SECONDS,
        body: msgspec.Struct | None = None,
    ) -> bytes:
        raw = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = self._connection(min(seconds, LONGEST_SECONDS) + MARGIN_SECONDS)
        prefix = urlsplit(self.url).path.rstrip("/")
        try:
            with closing(connection):
                connection.request(method, f"{prefix}{path}", raw, headers)
                answer = connection.getresponse()
                found = answer.read()
        except TimeoutError as error:
            raise CoordinatorUnreachable(
                "The coordinator did not answer in time",
                where=self.url,
                do="Try again; if it keeps happening, look at its log.",
            ) from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            process = "" if self.pid is None else f"; its process was {self.pid}"
            raise CoordinatorUnreachable(
                f"The coordinator cannot be reached: {error or type(error).__name__}{process}",
                where=self.url,
                do="Check whether the pipeline still runs; run it again if it has ended.",
            ) from error
        if answer.status >= 300:
            raise _error(answer.status, found, f"{method} {path.partition('?')[0]}")
        return found

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        kinds: dict[str, type[http.client.HTTPConnection]] = {
            "http": http.client.HTTPConnection,
            "https": http.client.HTTPSConnection,
        }
        try:
            parts = urlsplit(self.url)
            if parts.hostname:
                return kinds[parts.scheme](parts.hostname, parts.port, timeout=seconds)
        except (KeyError, ValueError):
            pass
        raise CoordinatorUnreachable(
            "This is not the address of a coordinator",
            where=self.url,
            do="An address looks like http://127.0.0.1:8765.",
        )


def _endpoint(source: str | None) -> str:
    return "" if source is None else f"/input_endpoints/{quote(source, safe='')}"


def _path(path: str, **given: str | float | None) -> str:
    """A path with its parameters; those that are None are left out."""
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return f"{path}?{urlencode(texts)}" if texts else path


def _decode(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise CoordinatorUnreachable(
            f"The server is not a coordinator of this version: {error}",
            do="Use the version of Anabranch that runs the pipeline.",
        ) from error


def _error(status: int, raw: bytes, call: str) -> AnabranchError:
    try:
        problem = msgspec.json.decode(raw, type=ProblemDocument)
    except msgspec.DecodeError:
        return CoordinatorUnreachable(
            f"The server is not a coordinator: HTTP status {status}",
            do="Use the address that the pipeline printed when it started.",
        )
    where = None if problem.where == call else problem.where  # callers know what they called
    return error_of(Failure(problem.code, problem.detail, where, problem.do))
