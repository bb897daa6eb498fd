"""Queries that could end all other queries, against a pipeline under load in its own processes.

``python -m tests.spark.query_bombs DIRECTORY [ROUNDS]`` asks each of them, then ``select 1``, and
prints what came back and how long that took. After that the pipeline must still make steps.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from anabranch.errors import AnabranchError
from anabranch.http.schemas import QueryRequest
from tests.spark.killing import Site

SECONDS = 3.0
PATIENCE = 50.0

READ_OFF_THE_PLAN = "select length(repeat('x', 2147483647))"
IN_THE_DRIVER = "select length(repeat('x', length(space(60000000)) * 35))"
IN_A_TASK = (
    'select max(length(repeat(string(count), cast(2147483647 - 0 * count as int)))) from "second"'
)
WITHOUT_END = "select count(*) from range(9999999) a cross join range(9999999) b where a.id < b.id"
STUCK = """
    select aggregate(sequence(1, n), 0L, (a, x) ->
        a + aggregate(sequence(1, n), 0L, (b, y) -> b + y % 7))
    from values (40000) as numbers (n)
"""
"""Computed by the driver before there is a job: nothing can interrupt it."""

BOMBS = (
    (READ_OFF_THE_PLAN, PATIENCE, "query.expression_too_large"),
    (IN_THE_DRIVER, PATIENCE, "query.failed"),
    (IN_A_TASK, PATIENCE, "query.failed"),
    (WITHOUT_END, SECONDS, "query.timeout"),
    (STUCK, SECONDS, "query.timeout"),
)


def answer(site: Site, sql: str, seconds: float) -> str:
    """The rows of a query, or the code of its error."""
    try:
        rows = json.loads(site.client().query(QueryRequest(sql=sql, seconds=seconds)))["rows"]
        return str(rows)
    except AnabranchError as error:
        return error.code


def bombard(site: Site, rounds: int) -> None:
    """Ask everything in turn."""
    for _ in range(rounds):
        for sql, seconds, code in BOMBS:
            began = time.monotonic()
            found = answer(site, sql, seconds)
            asked = time.monotonic()
            after = answer(site, "select 1", PATIENCE)
            ended = time.monotonic()
            print(
                f"{found} after {asked - began:.1f} s, then {after} in {ended - asked:.1f} s:", sql
            )
            assert found == code, sql
            assert after == "[[1]]", sql


def main(base: Path, rounds: int) -> None:
    """Run a pipeline, ask, and see that it is as it should be."""
    site = Site(base, seed=1)
    try:
        site.run()
        site.running()
        node = site.node()
        bombard(site, rounds)
        site.more(2)
        site.check()
        assert site.node() == node, "the node was replaced"
    finally:
        site.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
