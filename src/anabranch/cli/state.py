"""``anabranch state``: inspect the state of a pipeline in its directory, without Spark.

It only reads the directory, so the pipeline may keep running.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from anabranch.cli.connect import Json

if TYPE_CHECKING:
    from anabranch.plan.state_view import StateView
    from anabranch.records.placed import OperatorState

T = TypeVar("T")

state = typer.Typer(
    help="Inspect the state in a pipeline's directory, without Spark.", no_args_is_help=True
)

Directory = Annotated[
    Path,
    typer.Option(metavar="DIR", exists=True, file_okay=False, help="The pipeline's directory."),
]
Operator = Annotated[
    str | None, typer.Argument(metavar="OPERATOR", show_default=False, help="The operator's name.")
]
OperatorOption = Annotated[str | None, typer.Option("--operator", hidden=True)]
Step = Annotated[
    int | None, typer.Option(min=1, help="A step still in the journal; the last one by default.")
]


@state.command("list")
def list_operators(directory: Directory, step: Step = None, json: Json = False) -> None:
    """List the operators with state, and the readable steps."""
    from anabranch.task.state_reader import read_snapshot, steps_of

    snapshot = read_snapshot(directory.absolute(), step)
    operators = [_describe(kept) for kept in snapshot.states]
    steps = steps_of(directory.absolute())
    if json:
        _print_json({"step": snapshot.step, "steps": steps, "operators": operators})
        return
    readable = f"steps {steps[0]} to {steps[-1]} can be read" if steps else "nothing committed yet"
    print(f"Step {snapshot.step}; {readable}.")
    for each in operators:
        print(_operator_text(each))


@state.command()
def show(
    directory: Directory,
    operator: Operator = None,
    step: Step = None,
    limit: Annotated[int, typer.Option(min=0, help="Number of rows.")] = 20,
    json: Json = False,
    named: OperatorOption = None,
) -> None:
    """Show some rows of an operator's state, in no particular order."""
    from anabranch.dataflow.types.schema import to_ddl
    from anabranch.http.text_table import text_table
    from anabranch.task.state_reader import read_snapshot

    operator = _required(operator or named, "OPERATOR")
    snapshot = read_snapshot(directory.absolute(), step)
    view = snapshot.view(operator)
    rows = _first_rows(view, directory.absolute(), limit)
    if json:
        columns = to_ddl(view.schema())
        _print_json({"step": snapshot.step, "operator": operator, "columns": columns, "rows": rows})
        return
    total = sum(sum(kept.live) for kept in snapshot.states if kept.operator == operator)
    print(f"Step {snapshot.step}; {len(rows):,} of {total:,} rows.")
    typer.echo(text_table(view.schema().names, [list(row.values()) for row in rows]), nl=False)


@state.command()
def export(
    directory: Directory,
    operator: Operator = None,
    output: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", show_default=False, help="The Parquet file to write; it must be new."
        ),
    ] = None,
    step: Step = None,
    json: Json = False,
    named: OperatorOption = None,
    output_option: Annotated[Path | None, typer.Option("--output", hidden=True)] = None,
) -> None:
    """Write an operator's state to a Parquet file, a few bins at a time."""
    from anabranch.node.export import export_parquet
    from anabranch.task.state_reader import read_snapshot

    operator = _required(operator or named, "OPERATOR")
    output = _required(output or output_option, "FILE")
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
    from anabranch.coordinator.driver.checkpoint_copy import copy_checkpoint
    from anabranch.node.flow_code import load_flow

    name = load_flow(flow).graph().name
    done = copy_checkpoint(directory.absolute(), name, step, target.absolute())
    if json:
        _print_json(msgspec.to_builtins(done) | {"target": str(target)})
        return
    print(f"Step {done.step}: {done.files:,} files, {done.bytes:,} bytes: {target}")


def _required(given: T | None, metavar: str) -> T:
    if given is None:
        raise typer.BadParameter(f"Missing argument {metavar!r}.")
    return given


def _operator_text(described: dict[str, Any]) -> str:
    """An operator in a few lines, which fit on a narrow terminal unless its columns are many."""
    from anabranch.cli.sizes import size
    from anabranch.http.text_table import visible

    found = {name: visible(str(value)) for name, value in described.items()}
    counts = ", ".join(_count(described[what], what) for what in ("keys", "runs"))
    return (
        f"\n{found['operator']}: {counts}, {size(described['bytes'])}, in {found['region']}\n"
        f"  kind   {found['kind']}\n  key    {found['key']}\n  state  {found['state']}"
    )


def _count(number: int, things: str) -> str:
    return f"{number:,} {things.removesuffix('s') if number == 1 else things}"


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


def _first_rows(view: StateView, store: Path, limit: int) -> list[dict[str, Any]]:
    import pyarrow as pa

    from anabranch.records.bin_set import BinSet
    from anabranch.task.state_reader import read_view

    rows: list[dict[str, Any]] = []
    for number in range(view.bins):
        if len(rows) >= limit:
            break
        for batch in read_view(view, store, BinSet.of([number])):
            rows += pa.Table.from_batches([batch.slice(0, limit - len(rows))]).to_pylist()
    return rows


def _print_json(value: Any) -> None:  # noqa: ANN401  (whatever is printed)
    from anabranch.operators.state_json import json_text

    print(json_text(value))
