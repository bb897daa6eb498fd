"""Serve a pipeline with the options of ``anabranch run``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.cli.run import NodeKind, RunOptions
from anabranch.coordinator.effects import StepDone
from anabranch.run import serve

if TYPE_CHECKING:
    from anabranch.http.serving import Served


def serve_flow(options: RunOptions, watch: Callable[[StepDone], None]) -> Served:
    """Serve a dataflow with the options of the command line."""
    return serve(
        options.flow,
        directory=options.directory,
        bins=options.bins,
        settings=options.settings,
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
