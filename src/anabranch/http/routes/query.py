"""The route ``/query``: one SQL query over state, its rows as JSON, Arrow or text."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from anabranch.http.app_context import AppContext
from anabranch.http.body import read_body
from anabranch.http.openapi import answers, body, ref
from anabranch.http.parameters import strict_router
from anabranch.http.schemas import QueryAnswer, QueryFormat, QueryRequest
from anabranch.http.text_table import text_table
from anabranch.operators.state_json import json_text
from anabranch.task.queries import STEP

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
TEXT = "text/plain"
MEDIA_TYPES: dict[QueryFormat, str] = {"json": JSON, "arrow": ARROW, "text": TEXT}

_QUALITY = re.compile(r"(?:^|;)\s*q\s*=\s*([01](?:\.\d*)?)\s*(?:;|$)")

STEP_HEADER = "X-Anabranch-Step"

_ROWS = {
    "description": QueryAnswer.__doc__,
    "content": {
        JSON: {"schema": ref(QueryAnswer)},
        ARROW: {"schema": {"type": "string", "format": "binary"}},
        TEXT: {"schema": {"type": "string"}},
    },
    "headers": {STEP_HEADER: {"description": "The queried step.", "schema": {"type": "integer"}}},
}


def query_calls(context: AppContext) -> APIRouter:
    """The route ``/query``."""
    calls = strict_router("looking")

    @calls.post(
        "/query",
        responses={**answers(None, 406, 409, 410, 413, 415, 422), 200: _ROWS},
        openapi_extra=body(QueryRequest),
    )
    async def query(request: Request) -> Response:
        """The rows of one SQL query over the state at the last committed step."""
        asked = await read_body(request, QueryRequest)
        seconds = context.query_seconds if asked.seconds is None else asked.seconds
        wanted = asked.format or preferred_format(request.headers.get("accept", "*/*"))

        def run() -> tuple[pa.Table, bytes]:
            found = context.coordinator.query(asked.sql, asked.rows, asked.bytes, seconds)
            # Still in the thread: encoding a large result takes time.
            return found, encode_result(found, wanted)

        table, content = await context.queries.call(run)
        step = result_step(table)
        headers = {} if step is None else {STEP_HEADER: str(step)}
        return Response(content, media_type=MEDIA_TYPES[wanted], headers=headers)

    return calls


def preferred_format(accept: str) -> QueryFormat:
    """The format that the caller prefers; 406 if it accepts none of ours.

    >>> preferred_format("text/html, text/plain;q=0.5, */*;q=0.1"), preferred_format("*/*")
    ('text', 'json')
    """
    ranked: list[tuple[float, QueryFormat]] = []
    for part in accept.lower().split(","):
        named, _, parameters = part.partition(";")
        quality = _QUALITY.search(parameters)
        for name, media in MEDIA_TYPES.items():
            if named.strip() in (media, f"{media.partition('/')[0]}/*", "*/*"):
                ranked.append((float(quality[1]) if quality else 1.0, name))
                break
    best, name = max(ranked, key=lambda one: one[0], default=(0.0, "json"))
    if best == 0:
        raise HTTPException(406, f"Accept names none of {', '.join(MEDIA_TYPES.values())}")
    return name


def result_step(table: pa.Table) -> int | None:
    """The step that a query read, if its result says so."""
    found = (table.schema.metadata or {}).get(STEP)
    return None if found is None else int(found)


def encode_result(table: pa.Table, wanted: QueryFormat) -> bytes:
    """Encode a result."""
    match wanted:
        case "arrow":
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            return bytes(sink.getvalue())
        case "text":
            return text_table(table.column_names, row_lists(table)).encode()
        case "json":
            columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
            answer = {"step": result_step(table), "columns": columns, "rows": row_lists(table)}
            return json_text(answer).encode()


def row_lists(table: pa.Table) -> list[list[Any]]:
    """Each row as a list; column names may repeat."""
    columns = [column.to_pylist() for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]
