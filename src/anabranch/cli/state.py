"""``anabranch state``: inspect the state of a pipeline in its directory, without Spark.

It only reads the directory, so the pipeline may keep running.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from anabranch.cli.connect import Json
from anabranch.cli.plain_text import literal
from anabranch.coordinator.driver.checkpoint_copy import copy_checkpoint
from anabranch.dataflow.types.schema import to_ddl
from anabranch.http.text_table import cell_text
from anabranch.node.export import export_parquet
from anabranch.node.flow_code import load_flow
from anabranch.operators.state_json import json_text
from anabranch.plan.state_view import StateView
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.task.state_reader import Snapshot, read_snapshot, read_view, steps_of

state = typer.Typer(
    help="Inspect the state in a pipeline's directory, without Spark.", no_args_is_help=True
)

Directory = Annotated[
    Path,
    typer.Option(metavar="DIR", exists=True, file_okay=False, help="The pipeline's directory."),
]
Operator = Annotated[str, typer.Option(metavar="NAME", help="The operator's name.")]
Step = Annotated[
    int | None, typer.Option(min=1, help="A step still in the journal; the last one by default.")
]


@state.command("list")
def list_operators(directory: Directory, step: Step = None, json: Json = False) -> None:
    """List the operators with state, and the readable steps."""
    snapshot = read_snapshot(directory.absolute(), step)
    operators = [_describe(kept) for kept in snapshot.states]
    steps = steps_of(directory.absolute())
    if json:
        _print_json({"step": snapshot.step, "steps": steps, "operators": operators})
        return
    readable = f"steps {steps[0]} to {steps[-1]} can be read" if steps else "nothing committed yet"
    print(f"Step {snapshot.step}; {readable}.")
    _print_table(operators)


@state.command()
def show(
    directory: Directory,
    operator: Operator,
    step: Step = None,
    limit: Annotated[int, typer.Option(min=0, help="Number of rows.")] = 20,
    json: Json = False,
) -> None:
    """Show some rows of an operator's state, in no particular order."""
    snapshot = read_snapshot(directory.absolute(), step)
    view = snapshot.view(operator)
    rows = _first_rows(view, directory.absolute(), limit)
    if json:
        columns = to_ddl(view.schema())
        _print_json({"step": snapshot.step, "operator": operator, "columns": columns, "rows": rows})
        return
    total = _keys(snapshot, operator)
    print(f"Step {snapshot.step}; {len(rows):,} of {total:,} rows.")
    _print_table(rows)


@state.command()
def export(
    directory: Directory,
    operator: Operator,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The Parquet file to write; it must be new.")
    ],
    step: Step = None,
    json: Json = False,
) -> None:
    """Write an operator's state to a Parquet file, a few bins at a time."""
    snapshot = read_snapshot(directory.absolute(), step)
    done = export_parquet(snapshot, operator, directory.absolute(), output)
    if json:
        _print_json(msgspec.to_builtins(done) | {"output": str(output)})
        return
    print(f"{done.rows:,} rows of {done.operator} after step {done.step}: {output}")


@state.command()
def copy(
    flow: Annotated[
        str, typer.Argument(metavar="FILE:FLOW", help="The dataflow of the directory.")
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new or empty directory.")],
    directory: Directory,
    step: Annotated[
        int | None, typer.Option(min=1, help="A kept checkpoint; the newest by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Copy a checkpoint to another directory, ready to run from there.

    Copies only the files of the checkpoint and verifies their checksums. The
    pipeline may keep running.
    """
    name = load_flow(flow).graph().name
    done = copy_checkpoint(directory.absolute(), name, step, target.absolute())
    if json:
        _print_json(msgspec.to_builtins(done) | {"target": str(target)})
        return
    print(f"Step {done.step}: {done.files:,} files, {done.bytes:,} bytes: {target}")


def _describe(kept: OperatorState) -> dict[str, Any]:
    return {
        "operator": kept.operator,
        "kind": kept.shape.kind,
        "region": kept.shape.region,
        "keys": sum(kept.live),
        "runs": len(kept.runs),
        "bytes": sum(listed.run.bytes for listed in kept.runs),
        "key": kept.shape.keys,
        "state": kept.shape.state,
    }


def _keys(snapshot: Snapshot, operator: str) -> int:
    return sum(sum(kept.live) for kept in snapshot.states if kept.operator == operator)


def _first_rows(view: StateView, store: Path, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number in range(view.bins):
        if len(rows) >= limit:
            break
        for batch in read_view(view, store, BinSet.of([number])):
            rows += pa.Table.from_batches([batch.slice(0, limit - len(rows))]).to_pylist()
    return rows


def _print_json(value: Any) -> None:  # noqa: ANN401  (whatever is printed)
    print(json_text(value))


def _print_table(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    table = Table()
    for name in rows[0]:
        table.add_column(literal(cell_text(name)))
    for row in rows:
        table.add_row(*(literal(cell_text(value)) for value in row.values()))
    Console().print(table)
