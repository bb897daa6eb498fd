"""The settings of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from anabranch.rescale.rounds import RescaleSettings

DEFAULT_WORKERS = 2
"""How many workers a new pipeline gets per region."""

LIMIT_SECONDS = 60.0
"""The default time limit of a query."""

MARGIN_SECONDS = 60.0
"""Files outlast the queries that may need them by at least this long."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The longest each wait may take, in seconds.

    ``silence``: a node that reports nothing for this long is replaced. ``cancel``: if a cancelled
    step still runs after this, the node is replaced. ``publish``: if no sink publishes anything for
    this long during a shutdown, the pipeline fails.
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
    """The settings of a run. None of them changes a result (R9).

    ``workers`` is how many workers each region gets. None keeps those that the pipeline had when it
    last ran, region by region; a new pipeline gets ``DEFAULT_WORKERS``.

    A step is taken when ``min_rows`` have arrived, when fewer have arrived and
    ``max_delay_seconds`` have passed since the first, and every ``tick_seconds`` if set.
    ``target_latency_seconds`` limits how much a step reads; None leaves it to the sources.
    A checkpoint is taken after ``checkpoint_seconds`` or ``checkpoint_steps``, whichever comes
    first, and the last ``keep_checkpoints`` are kept.

    ``max_unpublished_steps`` and ``max_unpublished_bytes`` are the backpressure: while so much
    output waits for a sink, no new step is planned.

    ``grace_seconds`` is how long an unneeded file stays, ``query_seconds`` the time limit of a
    query; 0 disables queries. Files must outlast queries by a minute, else ``ValueError``. After
    ``node_restarts`` losses without a commit in between, the node is not started again.

    ``homes`` is a directory on every host where its workers keep copies of the state they need;
    without it they read state in the pipeline's directory. With ``isolate_workers`` each worker
    has its own home, in ``homes`` or in the pipeline's directory, so that moving bins copies state
    even on one machine.
    """

    workers: int | None = None
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
    def moving(self) -> RescaleSettings:
        """The settings of rescales; without homes there is nothing to prefetch."""
        has_homes = self.isolate_workers or self.homes is not None
        return replace(self.rescale, prefetch=self.rescale.prefetch and has_homes)

    def __post_init__(self) -> None:
        """Reject invalid values, and a grace period that a query could outlast."""
        for name in ("workers", "min_rows", "checkpoint_steps", "keep_checkpoints"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
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
