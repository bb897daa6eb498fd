"""Each call against a served pipeline that moves, by what comes over the wire."""

from __future__ import annotations

import threading
import time

import msgspec
import pyarrow as pa
import pytest

from anabranch.coordinator.operations import (
    LoadCheckpoint,
    PausePipeline,
    PauseSource,
    ShutDownPipeline,
    StartPipeline,
    StartSource,
    TakeCheckpoint,
)
from anabranch.http.app import Application
from anabranch.http.server import Server
from anabranch.protocol.node import Failure
from anabranch.protocol.status import Phase, Status
from tests.http.little import FACTS, Little
from tests.http.raw import Site, until


def paused_at(site: Site, least: int) -> int:
    """Pause once so many steps are committed; gives the step."""
    until(lambda: site.get("/status").json()["step"] >= least)
    return int(site.post("/pause").json()["step"])


def test_status_is_the_whole_status(site: Site, little: Little) -> None:
    step = paused_at(site, 1)
    reply = site.get("/status")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert msgspec.json.decode(reply.body, type=Status) == little.status()
    assert reply.json()["step"] == step


def test_pause_and_start(site: Site, little: Little) -> None:
    step = paused_at(site, 2)
    assert site.get("/status").json()["phase"] == "paused"
    assert site.get("/status").json()["step"] == step
    started = site.post("/start")
    assert (started.status, started.json()["done"]) == (200, True)
    until(lambda: site.get("/status").json()["step"] > step)
    assert little.asked == [PausePipeline(), StartPipeline()]


def test_a_source_is_paused_and_started_while_steps_go_on(site: Site, little: Little) -> None:
    paused = site.post("/input_endpoints/numbers/pause")
    assert (paused.status, paused.json()["done"]) == (200, True)
    assert (paused.json()["operation"], paused.json()["status"]["phase"]) == (
        "source pause",
        "running",
    )
    assert [each["paused"] for each in paused.json()["status"]["sources"]] == [True]
    until(lambda: site.get("/status").json()["step"] > paused.json()["step"])
    assert site.get("/status").json()["sources"][0]["paused"] is True
    started = site.post("/input_endpoints/numbers/start").json()
    assert (started["operation"], started["status"]["sources"][0]["paused"]) == (
        "source start",
        False,
    )
    assert little.asked == [PauseSource("numbers"), StartSource("numbers")]


@pytest.mark.parametrize("name", ["number", "a%2Fb", "a/pause", "%20", "", ".", "x" * 5000])
def test_a_source_that_is_not_there_is_refused(site: Site, little: Little, name: str) -> None:
    for verb in ("pause", "start"):
        refused = site.post(f"/input_endpoints/{name}/{verb}").problem(409, "operation.refused")
        assert refused["do"] == "Sources: 'numbers'."
    site.post("/input_endpoints/numbers/pause?at=1").problem(400, "request.invalid")
    assert not little.source_paused
    site.post("/shutdown")
    site.post("/input_endpoints/numbers/pause").problem(409, "operation.refused")


def test_a_checkpoint_is_kept_and_listed(site: Site, little: Little) -> None:
    step = paused_at(site, 3)
    made = site.post("/checkpoint").json()
    assert (made["operation"], made["done"], made["step"]) == ("checkpoint", True, step)
    kept = site.get("/checkpoints").json()
    assert [one["step"] for one in kept["checkpoints"]] == [step]
    assert kept["under_way"] is None
    assert little.asked[-1] == TakeCheckpoint()


def test_a_checkpoint_that_takes_longer_answers_202_with_the_status() -> None:
    little = Little(pace=0.001, file_seconds=0.2).begin()
    with Server(Application(little, None)) as server:
        site = Site(server.address)
        step = paused_at(site, 2)
        reply = site.post("/checkpoint?seconds=0.1")
        assert (reply.status, reply.json()["done"], reply.json()["step"]) == (202, False, step)
        assert reply.json()["status"]["checkpoint"]["files"] == step


def test_load_goes_back_and_makes_a_branch(site: Site, little: Little) -> None:
    step = paused_at(site, 2)
    site.post("/checkpoint")
    site.post("/start")
    until(lambda: site.get("/status").json()["step"] > step)
    site.post("/pause")
    refused = site.post("/load", {"step": step}).problem(409, "operation.refused")
    assert "cannot take it back" in refused["detail"]
    assert "--accept-duplicates" in refused["do"]
    done = site.post("/load", {"step": step, "accept_duplicates": True}).json()
    assert (done["step"], done["status"]["branch"], done["status"]["step"]) == (step, 1, step)
    assert little.asked[-2:] == [LoadCheckpoint(step), LoadCheckpoint(step, accept_duplicates=True)]


@pytest.mark.parametrize(
    ("options", "status", "asked"),
    [
        ("", 200, ShutDownPipeline()),
        ("?at_once=true", 200, ShutDownPipeline(at_once=True)),
        ("?wait=false", 202, ShutDownPipeline()),
    ],
)
def test_shutdown(
    site: Site, little: Little, options: str, status: int, asked: ShutDownPipeline
) -> None:
    reply = site.post(f"/shutdown{options}")
    assert (reply.status, reply.json()["done"]) == (status, status == 200)
    assert little.asked == [asked]
    until(lambda: site.get("/status").json()["phase"] == "stopped")
    site.post("/start").problem(409, "operation.refused")


def test_status_and_pause_answer_while_as_many_wait_as_may() -> None:
    little = Little(pace=0.001, file_seconds=1.0).begin()
    with Server(Application(little, None)) as server:
        site = Site(server.address)
        paused_at(site, 1)
        waiting = [
            threading.Thread(target=site.post, args=("/checkpoint?seconds=20",), daemon=True)
            for _ in range(32)
        ]
        for thread in waiting:
            thread.start()
        until(lambda: site.post("/checkpoint?seconds=0").status == 503)
        refused = site.post("/checkpoint?seconds=0")
        refused.problem(503, "request.too_many")
        assert refused.headers["retry-after"] == "1"
        assert site.get("/status").status == 200
        assert site.post("/pause").status == 200
        assert little.under_way is not None  # they do wait
        little.file_seconds = 0.0  # the server would wait for them


def test_metadata_is_the_dataflow(site: Site) -> None:
    found = site.get("/metadata").json()
    assert (found["dataflow"], found["code"], found["bins"]) == ("little", "c0de", FACTS.bins)
    (region,) = found["regions"]
    assert (region["region"], region["workers"], region["generation"]) == ("by-step", 2, 1)
    assert [shape["operator"] for shape in region["states"]] == ["totals"]
    assert found["sinks"] == [{"name": "out", "stage_format": "parquet", "takes_back": False}]
    assert [(node["kind"], node["name"]) for node in found["nodes"]] == [
        ("source", "numbers"),
        ("aggregate", "totals"),
        ("sink", "out"),
    ]
    assert found["edges"] == [{"producer": 0, "consumer": 1}, {"producer": 1, "consumer": 2}]
    (source,) = found["source_regions"]
    assert (source["source"], source["read_by"], source["partitions"]) == ("numbers", "jvm", [])


def test_metadata_before_a_node_was_met(site: Site, little: Little) -> None:
    little.met = False
    site.get("/metadata").problem(503, "coordinator.starting")


def test_health_fails_with_the_pipeline(site: Site, little: Little) -> None:
    assert site.get("/health").json() == {"phase": "running", "leader": 3}
    little.fail(Failure("step.user_function", "add raised", "orders.py:7", "Mend it."))
    found = site.get("/health").problem(503, "step.user_function")
    assert (found["detail"], found["where"], found["do"]) == (
        "add raised",
        "orders.py:7",
        "Mend it.",
    )


def test_stats_add_up(site: Site) -> None:
    step = paused_at(site, 5)
    until(lambda: site.get("/stats").json()["recent"][-1]["step"] == step)
    found = site.get("/stats").json()
    assert (found["step"], found["rows"], found["keys"]) == (step, 5 * step * (step + 1), step)
    assert found["rows_per_second"] > 0
    assert found["latency"] == {"median": 0.02, "p95": 0.02, "longest": 0.02}
    assert found["parts"]["job"] == pytest.approx(2 * found["parts"]["planning"])
    assert found["lag"] == {"numbers": 7}


# ------------------------------------------------------------------------------------------ query

SQL = "select step, rows, null as empty from totals where step <= 2 order by step"


@pytest.mark.parametrize(("asked", "given"), [({}, 30), ({"seconds": 20}, 20)])
def test_a_query_may_take_what_the_pipeline_allows_unless_told(
    asked: dict[str, float], given: float
) -> None:
    seen: list[float] = []

    class Asked(Little):
        def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
            seen.append(seconds)
            return super().query(sql, rows, bytes, seconds)

    with Server(Application(Asked().begin(), None, query_seconds=30)) as server:
        assert Site(server.address).post("/query", {"sql": "select 1", **asked}).status == 200
    assert seen == [given]


def test_a_query_as_json_arrow_and_text(site: Site) -> None:
    step = paused_at(site, 2)
    as_json = site.post("/query", {"sql": SQL})
    assert as_json.headers["content-type"] == "application/json"
    assert as_json.headers["x-anabranch-step"] == str(step)
    assert as_json.json() == {
        "step": step,
        "columns": [
            {"name": "step", "type": "int64"},
            {"name": "rows", "type": "int64"},
            {"name": "empty", "type": "null"},
        ],
        "rows": [[1, 10, None], [2, 20, None]],
    }
    as_arrow = site.post("/query", {"sql": SQL}, Accept="application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(as_arrow.body).read_all()
    assert table.to_pydict() == {"step": [1, 2], "rows": [10, 20], "empty": [None, None]}
    as_text = site.post("/query", {"sql": SQL, "format": "text"}, Accept="application/json")
    assert as_text.headers["content-type"] == "text/plain; charset=utf-8"
    assert [line.split() for line in as_text.body.decode().splitlines()] == [
        ["step", "rows", "empty"],
        ["----", "----", "-----"],
        ["1", "10", "NULL"],
        ["2", "20", "NULL"],
    ]


SLOW = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"sql": "selec"}, 400, "query.invalid"),
        ({"sql": "select * from totals", "rows": 0}, 422, "query.too_large"),
        ({"sql": SLOW, "seconds": 0.2}, 422, "query.timeout"),
        ({"sql": SQL, "seconds": 61}, 400, "request.invalid"),
        ({"sql": SQL, "seconds": 601}, 400, "request.invalid"),
        ({"sql": ""}, 400, "request.invalid"),
        ({"sql": "select 1", "rows": 10_000_000}, 400, "request.invalid"),
        ({"sql": "select 1", "other": 1}, 400, "request.invalid"),
    ],
)
def test_queries_that_are_refused(
    site: Site, body: dict[str, object], status: int, code: str
) -> None:
    until(lambda: site.get("/status").json()["step"] >= 1)
    site.post("/query", body).problem(status, code)


def test_formats_and_types_that_are_not_there(site: Site) -> None:
    site.post("/query", {"sql": SQL}, Accept="image/png").problem(406, "request.invalid")
    body = {"Content-Type": "text/plain"}
    site.call("POST", "/query", b"select 1", body).problem(415, "request.invalid")


# ----------------------------------------------------------------------------------------- errors


def test_paths_and_methods_that_are_not_there(site: Site) -> None:
    assert site.get("/nothing").problem(404, "request.unknown")["where"] == "GET /nothing"
    reply = site.call("DELETE", "/status")
    reply.problem(405, "request.invalid")
    assert reply.headers["allow"] == "GET"
    assert site.call("DELETE", "/scale").headers["allow"] == "GET, POST"
    assert site.get("/input_endpoints/numbers/pause").headers["allow"] == "POST"
    site.get("/status/").problem(404, "request.unknown")


@pytest.mark.parametrize(
    "path",
    [
        "/checkpoint?secs=1",
        "/checkpoint?seconds=1&seconds=2",
        "/pause?seconds=1",
        "/load?=",
        "/x?y",
    ],
)
def test_parameters_that_are_not_there_are_refused(site: Site, path: str) -> None:
    reply = site.post(path, {"step": 1} if "load" in path else None)
    code = "request.unknown" if path == "/x?y" else "request.invalid"
    reply.problem(404 if path == "/x?y" else 400, code)


@pytest.mark.parametrize("seconds", ["-1", "601", "nan", "inf", "soon", ""])
def test_times_are_bounded(site: Site, seconds: str) -> None:
    found = site.post(f"/checkpoint?seconds={seconds}").problem(400, "request.invalid")
    assert "seconds" in found["detail"]


class Broken(Little):
    """A coordinator with a bug."""

    def info(self) -> None:
        raise ZeroDivisionError("secret things")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_is_a_problem_document_that_tells_no_secrets() -> None:
    with Server(Application(Broken().begin(), None)) as server:
        reply = Site(server.address).get("/metadata")
        reply.problem(500, "anabranch")
        assert b"secret" not in reply.body
        assert Site(server.address).get("/status").status == 200


def test_the_server_lets_calls_under_way_end_when_it_stops() -> None:
    little = Little(pace=0.001, file_seconds=0.5).begin()
    server = Server(Application(little, None)).start()
    site = Site(server.address)
    paused_at(site, 1)
    with little._changed:
        little.step = 1
    replies: list[int] = []
    thread = threading.Thread(target=lambda: replies.append(site.post("/checkpoint").status))
    thread.start()
    until(lambda: little.under_way is not None)
    time.sleep(0.05)
    server.stop()
    thread.join(10)
    assert replies == [200]
    assert little.phase is Phase.PAUSED
    with pytest.raises(OSError, match="refused"):
        site.get("/status")
