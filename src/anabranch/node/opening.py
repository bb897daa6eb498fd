"""Opening a pipeline where its journal says it stands: state, sources and sinks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anabranch.dataflow.graph import GraphNode
from anabranch.node.identity import check_outputs, check_sources, fitting, shapes
from anabranch.node.offers import Offers
from anabranch.node.outbox import Outbox
from anabranch.node.sink_progress import SinkProgress
from anabranch.protocol.node import GraphNodeInfo, OpenOrder, ProgramInfo, SinkInfo
from anabranch.protocol.sinks import Frames, SinkContext, SinkOpener, retry_of, takes_back
from anabranch.protocol.sources import Opener
from anabranch.records.placed import OperatorState
from anabranch.store.integrity import check_files, state_files
from anabranch.task.program import Program


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node needs of the world to open a pipeline."""

    store: Path
    frames: Frames | None
    open_source: Opener
    open_sink: SinkOpener
    clock: Callable[[], float]
    reached: Callable[[str, int], None]
    #: raises if what runs the steps is dead: whatever failed then, failed by that
    check_plane: Callable[[], None]


@dataclass(frozen=True, slots=True)
class OpenPipeline:
    """A pipeline that is open: its state, and whoever reads and publishes for it."""

    states: tuple[OperatorState, ...]
    offers: Offers
    outbox: Outbox

    def close(self, seconds: float | None = None) -> None:
        """Publish nothing any more, and let go of the sources, whatever they raise.

        A step that is being published is waited for, so many seconds at most if that is said.
        """
        self.outbox.close(seconds)
        with contextlib.suppress(Exception):
            self.offers.close()


def facts_of(program: Program, code: str, releasing: str = "") -> ProgramInfo:
    """What the coordinator must know of a dataflow, and of the cluster that it runs on."""
    return ProgramInfo(
        dataflow=program.typed.graph.name,
        code=code,
        bins=program.bins,
        regions=tuple(region.name for region in program.physical.regions),
        shapes=shapes(program),
        sources=tuple(node.name for node in program.physical.sources()),
        sinks=tuple(
            SinkInfo(name, node.sink.stage_format, takes_back(node.sink))
            for name, node in program.sinks.items()
        ),
        partitions=program.partitions,
        releasing=releasing,
        graph=tuple(_node_facts(program, node) for node in program.typed.graph.nodes),
        times=program.time_graph,
    )


def _node_facts(program: Program, node: GraphNode) -> GraphNodeInfo:
    region = program.typed.region(node.id)
    return GraphNodeInfo(
        node.id,
        node.kind,
        getattr(node, "name", None),
        None if region is None else getattr(program.typed.graph.node(region), "name", None),
        node.inputs,
    )


def open_pipeline(program: Program, order: OpenOrder, around: Surroundings) -> OpenPipeline:
    """Check that the dataflow and the files fit; then open sources and sinks.

    All or nothing, but for a sink that is away: it is opened later, in the thread that publishes.
    """
    states = fitting(program, order.states or (), around.store)
    check_sources(program, (*order.positions, *order.pending), around.store)
    check_outputs(program, order.outputs, order.published, around.store)
    check_files(around.store, state_files(states), whole=order.whole)
    outbox = _opened_sinks(program, order, around)
    offers = Offers(
        program.physical,
        around.store,
        order.positions,
        order.pending,
        order.step,
        order.limit,
        around.clock,
        around.open_source,
        around.check_plane,
        {given.source for given in program.time_graph.inputs if given.idle_us is not None},
    )
    return OpenPipeline(states, offers, outbox)


def _opened_sinks(program: Program, order: OpenOrder, around: Surroundings) -> Outbox:
    """The sinks, all of which were tried: those that are away now are opened later."""
    back_to = order.rewound
    sinks = []
    for name, node in program.sinks.items():
        done = order.published.get(name, order.step)
        schema = program.physical.schemas[node.id]
        context = SinkContext(
            around.store, order.pipeline, name, schema, around.frames, around.reached
        )
        sinks.append(
            SinkProgress(
                name,
                partial(around.open_sink, node.sink, context),
                done if back_to is None else min(done, back_to),
                retry_of(node.sink),
                back_to,
            )
        )
    outbox = Outbox(sinks, order.outputs, around.clock, around.reached, around.check_plane)
    outbox.open()
    return outbox
