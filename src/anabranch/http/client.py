"""An HTTP client of a coordinator in another process, built on the standard library.

Every error is one of ``errors``; those of the coordinator keep their class.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pyarrow as pa

from anabranch.coordinator.effects import StepDone
from anabranch.errors import AnabranchError, CoordinatorUnreachable
from anabranch.http.address import read_address
from anabranch.http.schemas import (
    LONGEST_SECONDS,
    Checkpoints,
    LoadRequest,
    Metadata,
    OperationAnswer,
    ProblemDocument,
    ProfileAnswer,
    QueryRequest,
    RebalanceRequest,
    Rescales,
    ScaleAnswer,
    ScaleRequest,
    Stats,
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

    def stats(self) -> Stats:
        """The recent steps in numbers."""
        return self._get("/stats", Stats)

    def metadata(self) -> Metadata:
        """The running dataflow."""
        return self._get("/metadata", Metadata)

    def checkpoints(self) -> Checkpoints:
        """The kept checkpoints."""
        return self._get("/checkpoints", Checkpoints)

    def metrics(self) -> str:
        """The metrics in Prometheus's text format."""
        return self._call("GET", "/metrics", AT_ONCE_SECONDS).decode()

    def start(self, source: str | None = None) -> OperationAnswer:
        """Resume the pipeline or one source after a pause."""
        return self._operation(f"{_endpoint(source)}/start", AT_ONCE_SECONDS)

    def pause(self, source: str | None = None) -> OperationAnswer:
        """Pause the pipeline after the current step, or pause one source."""
        return self._operation(f"{_endpoint(source)}/pause", AT_ONCE_SECONDS)

    def checkpoint(self, seconds: float = 30.0) -> OperationAnswer:
        """Keep the last committed step as a checkpoint; wait until it is durable."""
        return self._operation(f"/checkpoint?{urlencode({'seconds': seconds})}", seconds)

    def shutdown(
        self, *, at_once: bool = False, wait: bool = True, seconds: float = 30.0
    ) -> OperationAnswer:
        """End the pipeline; wait until it has ended."""
        given = {"at_once": _flag(at_once), "wait": _flag(wait), "seconds": seconds}
        return self._operation(f"/shutdown?{urlencode(given)}", seconds)

    def load(
        self, step: int, *, accept_duplicates: bool = False, seconds: float = 30.0
    ) -> OperationAnswer:
        """Go back to a kept checkpoint; wait until the new branch is durable."""
        body = LoadRequest(step, accept_duplicates)
        return self._operation(f"/load?{urlencode({'seconds': seconds})}", seconds, body)

    def rescales(self) -> Rescales:
        """The current rescale and recent finished ones."""
        return self._get("/scale", Rescales)

    def scale(self, asked: ScaleRequest, seconds: float = 30.0) -> ScaleAnswer:
        """Change the number of workers; wait until the request is durable."""
        return self._scaling("/scale", {}, seconds, asked)

    def rebalance(self, asked: RebalanceRequest, seconds: float = 30.0) -> ScaleAnswer:
        """Redistribute the bins; wait until the request is durable."""
        return self._scaling("/rebalance", {}, seconds, asked)

    def scale_pause(self, seconds: float = 30.0) -> ScaleAnswer:
        """Move no more bins until ``scale_resume``."""
        return self._scaling("/scale/pause", {}, seconds)

    def scale_resume(self, seconds: float = 30.0) -> ScaleAnswer:
        """Resume a paused rescale."""
        return self._scaling("/scale/resume", {}, seconds)

    def scale_cancel(self, *, roll_back: bool = False, seconds: float = 30.0) -> ScaleAnswer:
        """Stop a rescale and leave the bins where they are, or roll it back."""
        return self._scaling("/scale/cancel", {"roll_back": _flag(roll_back)}, seconds)

    def profile(self, request: ProfileRequest, seconds: float = 30.0) -> ProfileAnswer:
        """Profile a worker in the next step; wait for that step."""
        given: dict[str, Any] = {"worker": request.worker, "seconds": seconds}
        if request.region is not None:
            given["region"] = request.region
        path = "/heap_profile" if request.kind is ProfileKind.HEAP else "/dump_profile"
        return _decode(self._call("GET", f"{path}?{urlencode(given)}", seconds), ProfileAnswer)

    def query(self, asked: QueryRequest) -> bytes:
        """The rows of a query in the format that it names, JSON by default."""
        seconds = LONGEST_SECONDS if asked.seconds is None else asked.seconds
        return self._call("POST", "/query", seconds, asked)

    def table(self, sql: str, **limits: Any) -> pa.Table:  # noqa: ANN401  (those of QueryRequest)
        """The rows of a query as an Arrow table."""
        found = self.query(QueryRequest(sql, "arrow", **limits))
        return pa.ipc.open_stream(found).read_all()

    def events(self, seconds: float, after: int | None = None) -> Iterator[StepDone]:
        """Each committed step as it comes, until the time is up or the pipeline ends."""
        given = {"seconds": seconds, **({} if after is None else {"after": after})}
        connection = self._connection(MARGIN_SECONDS * 3)
        with closing(connection), self._network_errors():
            answer = self._send(connection, "GET", f"/events?{urlencode(given)}", None, {})
            if answer.status != 200:
                raise _error(answer.status, answer.read())
            kind = ""
            for line in answer:
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "step":
                    yield msgspec.json.decode(value, type=StepDone)

    def _get(self, path: str, kind: type[T]) -> T:
        return _decode(self._call("GET", path, AT_ONCE_SECONDS), kind)

    def _operation(
        self, path: str, seconds: float, body: msgspec.Struct | None = None
    ) -> OperationAnswer:
        return _decode(self._call("POST", path, seconds, body), OperationAnswer)

    def _scaling(
        self, path: str, given: dict[str, str], seconds: float, body: msgspec.Struct | None = None
    ) -> ScaleAnswer:
        asked = urlencode({**given, "seconds": seconds})
        return _decode(self._call("POST", f"{path}?{asked}", seconds, body), ScaleAnswer)

    def _call(
        self, method: str, path: str, seconds: float, body: msgspec.Struct | None = None
    ) -> bytes:
        raw = None if body is None else msgspec.json.encode(body)
        kinds = {} if body is None else {"Content-Type": "application/json"}
        connection = self._connection(min(seconds, LONGEST_SECONDS) + MARGIN_SECONDS)
        with closing(connection), self._network_errors():
            answer = self._send(connection, method, path, raw, kinds)
            found = answer.read()
        if answer.status >= 300:
            raise _error(answer.status, found)
        return found

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        kinds: dict[str, type[http.client.HTTPConnection]] = {
            "http": http.client.HTTPConnection,
            "https": http.client.HTTPSConnection,
        }
        if parts.scheme not in kinds or not parts.hostname:
            raise CoordinatorUnreachable(
                "This is not the address of a coordinator",
                where=self.url,
                do="An address looks like http://127.0.0.1:8765.",
            )
        return kinds[parts.scheme](parts.hostname, parts.port, timeout=seconds)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        token = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        prefix = urlsplit(self.url).path.rstrip("/")
        connection.request(method, f"{prefix}{path}", body, {**headers, **token})
        return connection.getresponse()

    @contextmanager
    def _network_errors(self) -> Iterator[None]:
        """Turn every network error into ``CoordinatorUnreachable``."""
        try:
            yield
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


def _endpoint(source: str | None) -> str:
    return "" if source is None else f"/input_endpoints/{quote(source, safe='')}"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _decode(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise CoordinatorUnreachable(
            f"The server is not a coordinator of this version: {error}",
            do="Use the version of Anabranch that runs the pipeline.",
        ) from error


def _error(status: int, raw: bytes) -> AnabranchError:
    try:
        problem = msgspec.json.decode(raw, type=ProblemDocument)
    except msgspec.DecodeError:
        return CoordinatorUnreachable(
            f"The server is not a coordinator: HTTP status {status}",
            do="Use the address that the pipeline printed when it started.",
        )
    return error_of(Failure(problem.code, problem.detail, problem.where, problem.do))
