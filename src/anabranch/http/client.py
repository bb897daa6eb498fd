"""A client of a coordinator: for the shell, and for whoever talks to another process.

Made of the standard library. Every error is of the tree in ``errors``: those that the coordinator
answers with are of the class they had there.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
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
"""How long an answer may take that should come at once."""

MARGIN_SECONDS = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Client:
    """Calls one coordinator; a connection for each call. Any thread may use it."""

    url: str
    token: str | None = None
    pid: int | None = None

    @classmethod
    def of_directory(cls, directory: Path) -> Client:
        """A client of the coordinator that runs in a directory; ``CoordinatorUnreachable``."""
        address = read_address(directory)
        return cls(address.url, address.token, address.pid)

    def status(self) -> Status:
        """What the pipeline is doing."""
        return self._get("/status", Status)

    def stats(self) -> Stats:
        """The recent steps in numbers."""
        return self._get("/stats", Stats)

    def metadata(self) -> Metadata:
        """The dataflow that runs."""
        return self._get("/metadata", Metadata)

    def checkpoints(self) -> Checkpoints:
        """The kept checkpoints."""
        return self._get("/checkpoints", Checkpoints)

    def metrics(self) -> str:
        """The metrics as Prometheus reads them."""
        return self._call("GET", "/metrics", AT_ONCE_SECONDS).decode()

    def start(self, source: str | None = None) -> OperationAnswer:
        """Go on after a pause: of the pipeline, or of one source."""
        return self._operation(f"{_endpoint(source)}/start", AT_ONCE_SECONDS)

    def pause(self, source: str | None = None) -> OperationAnswer:
        """Plan no further step; or ask nothing more of one source."""
        return self._operation(f"{_endpoint(source)}/pause", AT_ONCE_SECONDS)

    def checkpoint(self, seconds: float = 30.0) -> OperationAnswer:
        """Keep the last committed step; wait so many seconds at most until it is durable."""
        return self._operation(f"/checkpoint?{urlencode({'seconds': seconds})}", seconds)

    def shutdown(
        self, *, at_once: bool = False, wait: bool = True, seconds: float = 30.0
    ) -> OperationAnswer:
        """End the pipeline; wait so many seconds at most until it has ended."""
        given = {"at_once": _word(at_once), "wait": _word(wait), "seconds": seconds}
        return self._operation(f"/shutdown?{urlencode(given)}", seconds)

    def load(
        self, step: int, *, accept_duplicates: bool = False, seconds: float = 30.0
    ) -> OperationAnswer:
        """Go back to a kept checkpoint; wait so many seconds at most until that is durable."""
        body = LoadRequest(step, accept_duplicates)
        return self._operation(f"/load?{urlencode({'seconds': seconds})}", seconds, body)

    def rescales(self) -> Rescales:
        """The rescale that is under way, and the last ones that are over."""
        return self._get("/scale", Rescales)

    def scale(self, asked: ScaleRequest, seconds: float = 30.0) -> ScaleAnswer:
        """Go to another number of workers; wait so many seconds at most until that is durable."""
        return self._scaling("/scale", {}, seconds, asked)

    def rebalance(self, asked: RebalanceRequest, seconds: float = 30.0) -> ScaleAnswer:
        """Share the bins anew; wait so many seconds at most until that is durable."""
        return self._scaling("/rebalance", {}, seconds, asked)

    def scale_pause(self, seconds: float = 30.0) -> ScaleAnswer:
        """Hand no more bins over until told to."""
        return self._scaling("/scale/pause", {}, seconds)

    def scale_resume(self, seconds: float = 30.0) -> ScaleAnswer:
        """Go on with a rescale that was paused."""
        return self._scaling("/scale/resume", {}, seconds)

    def scale_cancel(self, *, roll_back: bool = False, seconds: float = 30.0) -> ScaleAnswer:
        """Leave the bins where they are, or bring them back to where they were."""
        return self._scaling("/scale/cancel", {"roll_back": _word(roll_back)}, seconds)

    def profile(self, request: ProfileRequest, seconds: float = 30.0) -> ProfileAnswer:
        """What a worker spends in the next step; wait so many seconds at most for it."""
        given: dict[str, Any] = {"worker": request.worker, "seconds": seconds}
        if request.region is not None:
            given["region"] = request.region
        path = "/heap_profile" if request.kind is ProfileKind.HEAP else "/dump_profile"
        return _decoded(self._call("GET", f"{path}?{urlencode(given)}", seconds), ProfileAnswer)

    def query(self, asked: QueryRequest) -> bytes:
        """The rows of a query in the format that it names, JSON unless it names one."""
        seconds = LONGEST_SECONDS if asked.seconds is None else asked.seconds
        return self._call("POST", "/query", seconds, asked)

    def table(self, sql: str, **limits: Any) -> pa.Table:  # noqa: ANN401  (those of QueryRequest)
        """The rows of a query as an Arrow table."""
        found = self.query(QueryRequest(sql, "arrow", **limits))
        return pa.ipc.open_stream(found).read_all()

    def events(self, seconds: float, after: int | None = None) -> Iterator[StepDone]:
        """Each committed step as it comes, until so many seconds are over or the pipeline is."""
        given = {"seconds": seconds, **({} if after is None else {"after": after})}
        connection = self._connection(MARGIN_SECONDS * 3)
        with closing(connection), self._reaching():
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
        return _decoded(self._call("GET", path, AT_ONCE_SECONDS), kind)

    def _operation(
        self, path: str, seconds: float, body: msgspec.Struct | None = None
    ) -> OperationAnswer:
        return _decoded(self._call("POST", path, seconds, body), OperationAnswer)

    def _scaling(
        self, path: str, given: dict[str, str], seconds: float, body: msgspec.Struct | None = None
    ) -> ScaleAnswer:
        asked = urlencode({**given, "seconds": seconds})
        return _decoded(self._call("POST", f"{path}?{asked}", seconds, body), ScaleAnswer)

    def _call(
        self, method: str, path: str, seconds: float, body: msgspec.Struct | None = None
    ) -> bytes:
        raw = None if body is None else msgspec.json.encode(body)
        kinds = {} if body is None else {"Content-Type": "application/json"}
        connection = self._connection(min(seconds, LONGEST_SECONDS) + MARGIN_SECONDS)
        with closing(connection), self._reaching():
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
                "This is no address of a coordinator",
                where=self.url,
                do="An address is like http://127.0.0.1:8765.",
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

    def _reaching(self) -> _Reaching:
        return _Reaching(self.url, self.pid)


@dataclass(frozen=True, slots=True)
class _Reaching:
    """Turns whatever the network does into ``CoordinatorUnreachable``."""

    url: str
    pid: int | None

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Say where nobody answered, and what may be the reason."""
        if isinstance(error, socket.timeout):
            raise CoordinatorUnreachable(
                "The coordinator does not answer in time",
                where=self.url,
                do="Ask again; if it stays so, look at its log.",
            ) from error
        if isinstance(error, OSError | http.client.HTTPException | UnicodeError):
            process = "" if self.pid is None else f"; its process was {self.pid}"
            raise CoordinatorUnreachable(
                f"The coordinator cannot be reached: {error or type(error).__name__}{process}",
                where=self.url,
                do="See whether the pipeline still runs, and run it again if it has ended.",
            ) from error


def _endpoint(source: str | None) -> str:
    return "" if source is None else f"/input_endpoints/{quote(source, safe='')}"


def _word(value: bool) -> str:
    return "true" if value else "false"


def _decoded(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise CoordinatorUnreachable(
            f"What answers is not a coordinator of this version: {error}",
            do="Use the version of Anabranch that runs the pipeline.",
        ) from error


def _error(status: int, raw: bytes) -> AnabranchError:
    try:
        problem = msgspec.json.decode(raw, type=ProblemDocument)
    except msgspec.DecodeError:
        return CoordinatorUnreachable(
            f"What answers is not a coordinator: HTTP status {status}",
            do="Name the address that the pipeline printed when it began.",
        )
    return error_of(Failure(problem.code, problem.detail, problem.where, problem.do))
