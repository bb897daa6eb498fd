"""A connection of an HTTP server: how long it may keep the server waiting, and how many there are.

Guarantees
    Clients that hold connections without calling do not keep others out. A request must arrive
    in time, first its head, then its body, and an answer must be read. At the limits, the
    connection that has kept the server waiting longest is closed in favour of a new one. Where the
    application bounds the calls in progress below these limits, there is always one to close:
    whoever sends a call at once is answered.

Non-guarantees
    Behind a proxy all clients have the address of the proxy, and share its limit.
"""

from __future__ import annotations

import asyncio
import ipaddress
from abc import abstractmethod
from collections import Counter
from typing import Any

import h11
from starlette.responses import Response
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from anabranch.errors import AnabranchError, InvalidRequest, RequestTooSlow, TooManyRequests
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure

HEAD_SECONDS = 10.0
"""From the connection, or the last answer, to the end of a request's head."""

BODY_SECONDS = 15.0
"""From the head of a request to the end of its body."""

STALLED_SECONDS = 60.0
"""How long a client may read nothing of an answer."""

MOST_CONNECTIONS = 512
MOST_PER_CLIENT = 256


class BoundedConnection(H11Protocol):
    """A connection with deadlines, among a bounded number of others.

    A server's own class says in ``refusal`` how errors are answered.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.network = ""
        self.since = 0.0
        """When the server began to wait for the client, if it does."""
        self._begun = False
        self._expected: object = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set the first deadline, and make room if there are too many connections."""
        super().connection_made(transport)
        self.network = network_of(self.client[0]) if self.client else ""
        self._expect()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        self._begun = True
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._begun = False
        super().on_response_complete()
        self._expected = None
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        super().connection_lost(exc)
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """Watch whether the client reads."""
        super().pause_writing()
        self.since = self.loop.time()
        self._watch_reading()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    @abstractmethod
    def refusal(self, failure: Failure, place: str) -> Response:
        """The answer to a request that is not taken; ``place`` is the request."""

    def waits(self) -> bool:
        """Whether the server waits for the client: to send a request, or to read an answer."""
        return self._deadline is not None or self.flow.write_paused or self.transport.is_closing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._refuse(InvalidRequest("This is not a valid HTTP request", do="Speak HTTP/1.1."))

    def _expect(self) -> None:
        """Set the deadline of what the client has to send next, unless it runs already."""
        state = self.conn.their_state
        if state is self._expected:
            return
        self._expected = state
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = {h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(state)
        self._deadline = None
        if seconds is not None:
            self.since = self.loop.time()
            self._deadline = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:
            what = f"The body did not arrive within {BODY_SECONDS:g} s"
        elif self._begun:
            what = f"The head of the request did not arrive within {HEAD_SECONDS:g} s"
        else:  # between two requests
            self.transport.close()
            return
        self._refuse(RequestTooSlow(what, do="Send requests at once."))

    def _watch_reading(self, left: int | None = None) -> None:
        """Close the connection once nothing of what is left was read for a while."""
        still = self.transport.get_write_buffer_size()
        if left is not None and still >= left:
            self.transport.abort()
        else:
            self._stalled = self.loop.call_later(STALLED_SECONDS, self._watch_reading, still)

    def _make_room(self) -> None:
        if len(self.connections) <= MOST_PER_CLIENT:
            return
        everyone = [each for each in self.connections if isinstance(each, BoundedConnection)]
        counts = Counter(each.network for each in everyone)
        if counts[self.network] > MOST_PER_CLIENT:
            crowd = self.network
        elif len(everyone) > MOST_CONNECTIONS:
            crowd = counts.most_common(1)[0][0]
        else:
            return
        waiting = [each for each in everyone if each.network == crowd and each.waits()]
        # First those that have sent a part: of the others nothing may have been read yet.
        longest = min(waiting, key=lambda each: (not each._begun, each.since), default=self)
        self.connections.discard(longest)
        if longest is self:
            what = f"{len(everyone)} connections are open, which is the limit"
            self._refuse(TooManyRequests(what, do="Close some of them."))
        else:
            longest.transport.abort()

    def _refuse(self, error: AnabranchError) -> None:
        """Answer with an error and close; only close if an answer has begun."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        place = "the head of a request"
        if self.conn.our_state is h11.SEND_RESPONSE:
            place = f"{self.scope['method']} {self.scope['path']}"
            # What works on the request must not answer as well.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        answer = self.refusal(failure_of(error), place)
        answer.headers["Connection"] = "close"
        head = h11.Response(
            status_code=answer.status_code,
            headers=answer.raw_headers,
            reason=STATUS_PHRASES[answer.status_code],
        )
        events = (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage())
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()


def network_of(address: str) -> str:
    """Whom to count an address for: IPv6 clients have a whole network of them.

    >>> network_of("10.0.0.7"), network_of("::ffff:10.0.0.7"), network_of("2001:db8::7")
    ('10.0.0.7', '10.0.0.7', '2001:db8::/64')
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))
