"""From what ``anabranch run`` was told to a pipeline that is served."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.cli.run import USUAL, NodeKind, Wanted
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.settings import MARGIN_SECONDS, Deadlines, Settings
from anabranch.run import serve

if TYPE_CHECKING:
    from anabranch.http.serving import Served


def serve_wanted(wanted: Wanted, watch: Callable[[StepDone], None]) -> Served:
    """Serve a dataflow as it was asked for on the command line."""
    settings = Settings(
        workers=wanted.workers,
        target_latency_seconds=wanted.target_latency,
        checkpoint_seconds=wanted.checkpoint_seconds,
        keep_checkpoints=wanted.keep_checkpoints,
        accept_divergence=wanted.accept_divergence,
        rescale=wanted.rescale,
        homes=wanted.homes,
        isolate_workers=wanted.isolate_workers,
        deadlines=Deadlines(step=wanted.step_seconds),
        query_seconds=wanted.query_seconds,
        # Files must outlast queries.
        grace_seconds=max(USUAL.grace_seconds, wanted.query_seconds + MARGIN_SECONDS),
    )
    return serve(
        wanted.flow,
        directory=wanted.directory,
        bins=wanted.bins,
        settings=settings,
        master=wanted.master,
        spark_conf=dict(wanted.conf),
        inline=wanted.node is NodeKind.INLINE,
        host=wanted.host,
        port=wanted.port,
        token=wanted.token,
        take_over=wanted.take_over,
        rewind=wanted.rewind,
        accept_duplicates=wanted.accept_duplicates,
        watch=watch,
    )
