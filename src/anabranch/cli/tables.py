"""A pipeline's status as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anabranch.cli.plain_text import literal, plain_table
from anabranch.cli.scale_text import rescale_text
from anabranch.cli.sizes import size
from anabranch.http.text_table import visible
from anabranch.protocol.node import SinkRetry
from anabranch.protocol.status import ENDED, CheckpointStatus, NoStep, Phase, Status

STYLES = {
    Phase.RUNNING: "bold green",
    Phase.COMPLETED: "bold green",
    Phase.PAUSED: "bold yellow",
    Phase.PAUSING: "bold yellow",
    Phase.FAILED: "bold red",
}


def status_picture(status: Status) -> RenderableType:
    """The whole status of a pipeline."""
    parts: list[RenderableType] = [_heading(status), *_notes(status), Text()]
    parts += [table for table in (_operators(status), _edges(status)) if table.row_count]
    if status.checkpoints:
        parts.append(checkpoint_table(status.checkpoints))
    title = f"{status.dataflow or 'pipeline'}, leader {status.leader}, branch {status.branch}"
    return Panel(Group(*parts), title=literal(title), title_align="left", border_style="cyan")


def status_line(status: Status) -> str:
    """A pipeline on one line, for logs and pipes."""
    last = "" if status.last_seconds is None else f"  {status.last_seconds:.2f} s"
    waiting = sum(source.waiting for source in status.sources)
    why = "" if status.waiting_for is None else f"  waiting for {visible(status.waiting_for)}"
    return (
        f"{status.phase.value:10} step {status.step}  published {status.published}  "
        f"{status.rows:,} rows  {keys_of(status):,} keys  lag {waiting:,}"
        f"{paused_of(status)}{last}{why}"
    )


def paused_of(status: Status) -> str:
    """The paused sources, as part of a line; empty if there are none."""
    names = [visible(each.source) for each in status.sources if each.paused]
    return f" (paused: {', '.join(names)})" if names else ""


def keys_of(status: Status) -> int:
    """The number of keys in all regions."""
    return sum(region.keys for region in status.regions)


def checkpoint_table(checkpoints: Sequence[CheckpointStatus]) -> Table:
    """The kept checkpoints."""
    table = plain_table("checkpoint", "branch", "clock", "files", "bytes")
    for kept in checkpoints:
        counts = f"{kept.files:,}", size(kept.bytes)
        table.add_row(str(kept.step), str(kept.branch), clock(kept.clock_ns), *counts)
    return table


def clock(nanoseconds: int) -> str:
    """A step's clock, in UTC.

    >>> clock(1_700_000_000_000_000_000)
    '2023-11-14 22:13:20'
    """
    return f"{datetime.fromtimestamp(nanoseconds // 10**9, UTC):%Y-%m-%d %H:%M:%S}"


def _heading(status: Status) -> Text:
    style = STYLES.get(status.phase, "bold")
    text = Text.assemble(
        (status.phase.value, style),
        f"  step {status.step:,} committed, {status.published:,} published, "
        f"{status.rows:,} rows, {keys_of(status):,} keys, {status.workers} workers",
    )
    if status.last_seconds is not None and status.last_rows is not None:
        text.append(f"\nlast step {status.last_seconds:.2f} s for {status.last_rows:,} rows")
    return text


def _notes(status: Status) -> Iterator[Text]:
    if status.failure is not None:
        found = status.failure
        yield literal(f"[{found.code}] {found.what}. {found.do or ''}".strip(), "bold red")
    if status.under_way is not None:
        doing = status.under_way
        yield Text(f"step {doing.step}: {doing.doing} for {doing.seconds:.1f} s")
    if status.replaying is not None:
        yield Text(f"replaying up to step {status.replaying}", "yellow")
    if status.waiting_for is not None:
        yield literal(f"waiting for {status.waiting_for}", "yellow")
    elif status.no_step is not None and not _is_told_by_phase(status.no_step, status.phase):
        yield literal(f"no step: {status.no_step.text}")
    if status.node_lost is not None:
        lost = status.node_lost
        yield literal(f"the node was replaced: [{lost.code}] {lost.what}", "yellow")
    if status.rescale is not None:
        yield literal(rescale_text(status.rescale))
    if status.checkpoint is not None:
        making = status.checkpoint
        why = f", waits for {making.waiting_for}" if making.waiting_for else ""
        yield literal(f"checkpoint: {making.files_done:,} of {making.files:,} files{why}")
    for queued in status.queued:
        yield literal(f"queued: {queued}")


def _is_told_by_phase(found: NoStep, phase: Phase) -> bool:
    return phase in ENDED or found.reason.value == phase.value


def _operators(status: Status) -> Table:
    table = plain_table("operator", "region", "keys", "bytes", "runs")
    for held in status.operators:
        names = literal(held.operator), literal(held.region)
        table.add_row(*names, f"{held.keys:,}", size(held.bytes), str(held.runs))
    return table


def _edges(status: Status) -> Table:
    table = plain_table("source or sink", "")
    for source in status.sources:
        paused = ("  paused", "bold yellow") if source.paused else ""
        table.add_row(literal(source.source), Text.assemble(f"{source.waiting:,} waiting", paused))
    for sink in status.sinks:
        behind = f", {sink.steps_behind} behind" if sink.steps_behind else ""
        told = Text(f"step {sink.published:,} published{behind}")
        if sink.retry is not None:
            told.append_text(literal(f"\n{_retry(sink.retry)}", "bold yellow"))
        table.add_row(literal(sink.sink), told)
    return table


def _retry(retry: SinkRetry) -> str:
    """Why a sink fails, for how long it has, and when it is tried again."""
    left = retry.next_seconds
    then = "given up" if left is None else f"next try in {left:.0f} s"
    tries = "1 try" if retry.tries == 1 else f"{retry.tries} tries"
    failure = f"[{retry.failure.code}] {retry.failure.what}"
    return f"failing for {retry.seconds:.0f} s ({tries}), {then}: {failure}"
