"""Committed steps as server-sent events, read off the wire."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import ExitStack, closing

import pytest

from anabranch.coordinator.effects import StepDone
from anabranch.http import feed
from anabranch.http.app import Application
from anabranch.http.feed import Watcher
from anabranch.http.routes import events
from anabranch.http.server import Server
from tests.http.little import Little
from tests.http.raw import Site, until


def blocks(body: bytes) -> list[dict[str, str]]:
    """The events of a stream; comments under the name of nothing."""
    found = []
    for block in body.decode().strip().split("\n\n"):
        pairs = (line.split(": ", 1) for line in block.split("\n"))
        found.append(dict(pairs))
    return found


def steps(body: bytes) -> list[int]:
    return [int(event["id"]) for event in blocks(body) if event.get("event") == "step"]


def test_each_step_is_an_event_with_its_number(site: Site) -> None:
    reply = site.get("/events?most=3")
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = [event for event in blocks(reply.body) if "event" in event]
    numbers = [int(event["id"]) for event in found]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    for event in found:
        data = json.loads(event["data"])
        assert (event["event"], data["step"]) == ("step", int(event["id"]))
        assert (data["rows"], data["keys"]) == (10 * data["step"], data["step"])


def test_remembered_steps_come_first(site: Site, little: Little) -> None:
    until(lambda: site.get("/stats").json()["step"] > 5)
    first = int(site.get("/stats").json()["recent"][0]["step"])
    assert steps(site.get(f"/events?after={first}&most=3").body) == [
        first + 1,
        first + 2,
        first + 3,
    ]
    again = site.get("/events?most=2", **{"Last-Event-ID": str(first + 1)})
    assert steps(again.body) == [first + 2, first + 3]


def test_quiet_streams_are_kept_alive_and_end_in_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.05)
    site.post("/pause")
    until(lambda: steps(site.get("/events?seconds=0.2").body) == [])
    assert site.get("/events?seconds=0.5").body.count(b": still here\n\n") >= 3


def test_the_stream_ends_with_the_pipeline(site: Site) -> None:
    with closing(site.connection()) as connection:
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.readline() == b": committed steps\n"
        site.post("/shutdown")
        assert blocks(answer.read())[-1] == {"event": "end", "data": "{}"}
    assert b"event: end" in site.get("/events").body


def test_the_stream_ends_with_the_server() -> None:
    server = Server(Application(Little().begin(), None)).start()
    with closing(Site(server.address).connection()) as connection:
        connection.request("GET", "/events")
        answer = connection.getresponse()
        answer.readline()
        server.stop()
        assert b"event: end" in answer.read()


def test_no_more_watch_than_may(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_WATCHERS", 1)
    with closing(site.connection()) as connection:
        connection.request("GET", "/events")
        connection.getresponse().readline()
        site.get("/events").problem(503, "request.too_many")
    # The one who has gone makes room.
    until(lambda: site.get("/events?most=1").status == 200)


def test_of_many_at_once_as_many_watch_as_may(site: Site) -> None:
    with ExitStack() as open_calls:
        calls = [open_calls.enter_context(closing(site.connection())) for _ in range(60)]
        for connection in calls:
            connection.connect()
        for connection in calls:
            connection.request("GET", "/events")
        statuses = Counter(connection.getresponse().status for connection in calls)
    assert statuses == {200: feed.MOST_WATCHERS, 503: 60 - feed.MOST_WATCHERS}


def test_who_leaves_before_the_first_byte_gives_the_place_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MOST_WATCHERS", 1)
    for _ in range(20):
        with closing(site.connection()) as connection:
            connection.request("GET", "/events")
        until(lambda: site.get("/events?seconds=0.001").status == 200)


def test_a_watcher_that_is_slow_misses_the_oldest_and_is_told() -> None:
    async def scenario() -> tuple[list[int], int, bool]:
        watcher = Watcher(asyncio.get_running_loop(), queued=3)
        for number in range(1, 6):
            watcher.tell(StepDone(number, 0, 0, 0.0, {}))
        watcher.tell(None)
        await asyncio.sleep(0)
        found = []
        while (done := await watcher.next(1)) is not None:
            found.append(done.step)
        return found, watcher.missed, watcher.ended

    assert asyncio.run(scenario()) == ([3, 4, 5], 2, True)
