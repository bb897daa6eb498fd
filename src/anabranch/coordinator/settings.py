"""What a user may choose about a run. None of it changes a result (R9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from anabranch.rescale.rounds import RescaleSettings

LIMIT_SECONDS = 60.0
"""How long a query may take, unless told otherwise."""

MARGIN_SECONDS = 60.0
"""How long files stay at least after the last query that may need them is over."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How many seconds each wait may last before something is done about it.

    ``silence``: a node that says nothing for so long is replaced. ``cancel``: a step that was
    cancelled and still runs costs the node its process. ``publish``: a pipeline that is to end, and
    no sink of which publishes anything for so long, ends with that as its failure.
    """

    silence: float = 30.0
    start_node: float = 180.0
    open: float = 600.0
    take: float = 60.0
    step: float = 3600.0
    cancel: float = 30.0
    check: float = 600.0
    publish: float = 600.0
    close: float = 300.0
    again: float = 0.25


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose about a run. None of it changes a result (R9).

    A step is taken when ``min_rows`` have arrived in total, when fewer have arrived and
    ``max_delay_seconds`` have passed since the first of them, and every ``tick_seconds`` if that
    is set. How much a step reads follows ``target_latency_seconds``: None leaves it to the sources.
    A checkpoint is kept after ``checkpoint_seconds`` or ``checkpoint_steps``, whatever comes
    first, and the last ``keep_checkpoints`` stay.

    ``max_unpublished_steps`` and ``max_unpublished_bytes`` are the backpressure: while so much
    output waits for a sink, no new step is planned.

    ``grace_seconds`` is how long a file stays that no step needs any more, ``query_seconds`` how
    long a query may take; 0 is for a pipeline that nobody queries. Files must outlast queries by a
    minute: ``ValueError`` otherwise. A node that is lost ``node_restarts`` times without a commit
    between is not started once more.

    ``homes`` is a directory on every host where the workers of that host keep copies of the state
    that they need; without it state is read in the pipeline's directory, where it is. With
    ``isolate_workers`` each worker has a home of its own, in ``homes`` or in the pipeline's
    directory: what moves is then copied also on one machine.
    """

    workers: int = 2
    max_unpublished_steps: int = 64
    max_unpublished_bytes: int = 1 << 30
    grace_seconds: float = 120.0
    query_seconds: float = LIMIT_SECONDS
    min_rows: int = 1
    max_delay_seconds: float = 0.1
    tick_seconds: float | None = None
    target_latency_seconds: float | None = 0.5
    checkpoint_seconds: float = 300.0
    checkpoint_steps: int = 100
    keep_checkpoints: int = 2
    accept_divergence: bool = False
    node_restarts: int = 3
    rescale: RescaleSettings = field(default_factory=RescaleSettings)
    homes: str | None = None
    isolate_workers: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines)

    @property
    def has_homes(self) -> bool:
        """Whether workers have homes."""
        return self.isolate_workers or self.homes is not None

    @property
    def moving(self) -> RescaleSettings:
        """How bins move: without homes there is nothing to copy ahead."""
        return replace(self.rescale, prefetch=self.rescale.prefetch and self.has_homes)

    def __post_init__(self) -> None:
        """Refuse what makes no sense, and a grace that a query could outlast."""
        for name in ("workers", "min_rows", "checkpoint_steps", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("max_delay_seconds", "checkpoint_seconds", "query_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name):g}")
        for name in ("tick_seconds", "target_latency_seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, or None, not {value:g}")
        if self.query_seconds and self.grace_seconds < self.query_seconds + MARGIN_SECONDS:
            raise ValueError(
                f"grace_seconds={self.grace_seconds:g} is too short for queries of "
                f"{self.query_seconds:g} seconds: files must stay for query_seconds + "
                f"{MARGIN_SECONDS:g}. Raise it, or set query_seconds=0 to do without queries"
            )
