"""``dump_profile`` and ``heap_profile`` over the wire, as JSON and as text."""

from __future__ import annotations

import msgspec

from anabranch.coordinator.operations import ProfileWorker
from anabranch.http.client import Client
from anabranch.http.profile_text import NOT_YET, profile_text
from anabranch.http.schemas import ProfileAnswer
from anabranch.records.profiles import (
    FunctionTime,
    LineMemory,
    MemoryUse,
    ProfileKind,
    ProfileRequest,
    TaskProfile,
)
from tests.http.little import Little
from tests.http.raw import Site, until


def stepping(site: Site) -> None:
    until(lambda: site.get("/status").json()["step"] >= 1)


def test_where_the_time_goes(site: Site, little: Little) -> None:
    stepping(site)
    reply = site.post("/dump_profile?worker=1&region=by-step")
    assert reply.status == 200
    answer = msgspec.json.decode(reply.body, type=ProfileAnswer)
    assert answer.done
    assert answer.step is not None
    (found,) = answer.profiles
    assert (found.kind, found.group, found.worker) == ("time", "by-step", 1)
    assert "adding_up" in [each.function for each in found.functions]
    assert little.asked == [ProfileWorker(ProfileRequest(ProfileKind.TIME, 1, "by-step"))]


def test_where_the_memory_is(site: Site, little: Little) -> None:
    stepping(site)
    answer = msgspec.json.decode(site.post("/heap_profile").body, type=ProfileAnswer)
    (found,) = answer.profiles
    assert (found.kind, found.worker) == ("heap", 0)
    assert found.memory is not None
    assert found.memory.resident > 1 << 20
    assert little.asked == [ProfileWorker(ProfileRequest(ProfileKind.HEAP, 0))]


def test_as_text(site: Site) -> None:
    stepping(site)
    reply = site.post("/dump_profile?format=text")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    text = reply.body.decode()
    assert "worker 0" in text.splitlines()[0]
    assert "adding_up" in text
    assert "resident" in site.post("/heap_profile?format=text").body.decode()


def test_no_step_comes(site: Site) -> None:
    stepping(site)
    reply = site.post("/dump_profile?seconds=0")
    assert (reply.status, reply.json()["done"], reply.json()["profiles"]) == (202, False, [])
    assert site.post("/dump_profile?seconds=0&format=text").body.decode() == NOT_YET


def test_what_cannot_be_looked_at(site: Site) -> None:
    stepping(site)
    site.post("/dump_profile?worker=9").problem(409, "operation.refused")
    site.post("/pause")
    site.post("/dump_profile").problem(409, "operation.refused")
    site.post("/dump_profile?worker=-1").problem(400, "request.invalid")
    site.post("/heap_profile?region=").problem(400, "request.invalid")
    site.post("/heap_profile?format=pprof").problem(400, "request.invalid")
    site.post("/heap_profile?regoin=by-step").problem(400, "request.invalid")


def test_a_profile_slows_a_step_so_it_is_not_had_by_looking(site: Site, little: Little) -> None:
    for path in ("/dump_profile", "/heap_profile?worker=1"):
        reply = site.get(path)
        found = reply.problem(405, "request.invalid")
        assert (found["detail"], found["do"]) == ("This call is not made by GET", "Use POST.")
        assert found["where"] == f"GET {path.partition('?')[0]}"
        assert reply.headers["allow"] == "POST"
    assert little.asked == []


def test_the_client_asks_for_both(site: Site) -> None:
    stepping(site)
    client = Client(site.url)
    for kind in ProfileKind:
        answer = client.profile(ProfileRequest(kind, 0, "by-step"))
        assert [each.kind for each in answer.profiles] == [kind]


def test_the_text_of_both_kinds() -> None:
    time = TaskProfile(
        ProfileKind.TIME,
        "by-name",
        1,
        0.0125,
        functions=(
            FunctionTime("add", "/home/ada/orders.py", 7, 1200, 0.004, 0.009),
            FunctionTime("<built-in method len>", "", 0, 3, 0.0000001, 0.0000001),
        ),
        left_out=12,
    )
    heap = TaskProfile(
        ProfileKind.HEAP,
        "by-name",
        0,
        0.5,
        lines=(LineMemory("/srv/app/flows/orders.py", 9, 4096, 2),),
        memory=MemoryUse(120 << 20, 3 << 20, 9 << 20, 4096, 1 << 20),
    )
    assert profile_text(ProfileAnswer(True, 42, (time, heap))) == (
        "step 42, by-name, worker 1: 12.5 ms while profiled\n"
        "\n"
        "own ms   ms  calls  function               where\n"
        "------  ---  -----  ---------------------  --------------------\n"
        "   4.0  9.0   1200  add                    home/ada/orders.py:7\n"
        "   0.0  0.0      3  <built-in method len>\n"
        "and 12 more\n"
        "\n"
        "step 42, by-name, worker 0: 500.0 ms while profiled\n"
        "resident 120.0 MiB, Arrow 3.0 MiB (most 9.0 MiB), objects of this step 0.0 MiB "
        "(most 1.0 MiB)\n"
        "\n"
        "bytes  blocks  line\n"
        "-----  ------  ---------------------\n"
        " 4096       2  app/flows/orders.py:9\n"
    )
