"""Serve a pipeline with the options of ``anabranch run``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.cli.run import USUAL, NodeKind, RunOptions
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.settings import MARGIN_SECONDS, Deadlines, Settings
from anabranch.run import serve

if TYPE_CHECKING:
    from anabranch.http.serving import Served


def serve_flow(options: RunOptions, watch: Callable[[StepDone], None]) -> Served:
    """Serve a dataflow with the options of the command line."""
    settings = Settings(
        workers=options.workers,
        target_latency_seconds=options.target_latency,
        checkpoint_seconds=options.checkpoint_seconds,
        keep_checkpoints=options.keep_checkpoints,
        accept_divergence=options.accept_divergence,
        rescale=options.rescale,
        homes=options.homes,
        isolate_workers=options.isolate_workers,
        deadlines=Deadlines(step=options.step_seconds),
        query_seconds=options.query_seconds,
        # Files must outlast queries.
        grace_seconds=max(USUAL.grace_seconds, options.query_seconds + MARGIN_SECONDS),
    )
    return serve(
        options.flow,
        directory=options.directory,
        bins=options.bins,
        settings=settings,
        master=options.master,
        spark_conf=dict(options.conf),
        inline=options.node is NodeKind.INLINE,
        host=options.host,
        port=options.port,
        token=options.token,
        take_over=options.take_over,
        rewind=options.rewind,
        accept_duplicates=options.accept_duplicates,
        watch=watch,
    )
