"""Steps, one after the other: plan, run, commit; from wherever the journal says.

The order is the only one there is: a plan is durable before anything runs, the commit names what
counts, and output is published after it. Whatever happens between two of these points, a restart
finds either a commit, and goes on after it, or a plan without one, and runs it again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from anabranch.errors import AttemptsDisagree, StoreError
from anabranch.node.data_plane import DataPlane
from anabranch.node.identity import check_sinks, check_sources, identify, states_for
from anabranch.node.inputs import Inputs, open_plainly
from anabranch.node.program import Program
from anabranch.node.publishing import Publishing, output_of
from anabranch.node.queries import LIMIT_SECONDS, MARGIN_SECONDS
from anabranch.node.retention import Retention
from anabranch.node.settle import Settled, expected_tasks, rows_read, settle
from anabranch.node.state_reader import Snapshot, snapshot_of
from anabranch.node.store_log import StoreLog
from anabranch.plan.step import (
    Assignment,
    Commit,
    Input,
    OperatorState,
    Plan,
    decode_commit,
    decode_plan,
    encode,
)
from anabranch.rescale.assignments import equal_shares
from anabranch.sinks.port import Frames, Publisher, SinkContext, StagedFile
from anabranch.sources.port import Opener
from anabranch.state.journal import CommitName, Journal, PlanName, PublishedName, Taken, Trimmed

ATTEMPTS = 3
SWEEP_EVERY = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose about a run. None of it changes a result (R9).

    ``grace_seconds`` is how long a file stays that no step needs any more, ``query_seconds`` how
    long a query may take; 0 is for a pipeline that nobody queries. Files must outlast queries by a
    minute: ``ValueError`` otherwise.
    """

    workers: int = 2
    max_unpublished_steps: int = 64
    max_unpublished_bytes: int = 1 << 30
    grace_seconds: float = 120.0
    query_seconds: float = LIMIT_SECONDS

    def __post_init__(self) -> None:
        """Refuse a grace that a query could outlast."""
        if self.query_seconds < 0:
            raise ValueError(f"query_seconds must not be negative, not {self.query_seconds:g}")
        if self.query_seconds and self.grace_seconds < self.query_seconds + MARGIN_SECONDS:
            raise ValueError(
                f"grace_seconds={self.grace_seconds:g} is too short for queries of "
                f"{self.query_seconds:g} seconds: files must stay for query_seconds + "
                f"{MARGIN_SECONDS:g}. Raise it, or set query_seconds=0 to do without queries"
            )


@dataclass(frozen=True, slots=True)
class StepDone:
    """A committed step in numbers."""

    step: int
    rows: int
    keys: int
    seconds: float
    parts: dict[str, float]


class Runner:
    """A pipeline in its directory. Not shared between threads."""

    def __init__(
        self,
        program: Program,
        directory: Path,
        plane: DataPlane,
        code: str,
        settings: Settings,
        clock: Callable[[], float],
        reached: Callable[[str, int], None] = lambda point, step: None,
        frames: Frames | None = None,
        open_source: Opener = open_plainly,
    ) -> None:
        """Nothing is read yet: ``recover`` comes first."""
        self._program = program
        self._directory = directory
        self._plane = plane
        self._code = code
        self._settings = settings
        self._clock = clock
        self._reached = reached
        self._frames = frames
        self._open_source = open_source
        self._journal = Journal(directory / "journal")
        self._retention = Retention(directory, self._journal, settings.grace_seconds)
        self._commit: Commit | None = None
        self._pending: Plan | None = None
        self._states: tuple[OperatorState, ...] = ()
        self._snapshot = snapshot_of(0, 0, program.bins, (), ())
        self._inputs: Inputs | None = None
        self._unpublished: dict[int, tuple[StagedFile, ...]] = {}
        self._publishing: Publishing | None = None

    @property
    def step(self) -> int:
        """The last committed step; 0 before the first."""
        return 0 if self._commit is None else self._commit.step

    @property
    def clock_ns(self) -> int:
        """The clock of the last committed step; 0 before the first."""
        return 0 if self._commit is None else self._commit.clock_ns

    @property
    def states(self) -> tuple[OperatorState, ...]:
        """The state after the last committed step."""
        return self._states

    @property
    def settings(self) -> Settings:
        """What was chosen about this run."""
        return self._settings

    @property
    def snapshot(self) -> Snapshot:
        """The state after the last committed step, as one value: any thread may read it."""
        return self._snapshot

    @property
    def published(self) -> int:
        """The last step that all sinks have."""
        return min(self._publisher().done().values(), default=self.step)

    def recover(self) -> None:
        """Find out where the pipeline stands, and open sources and sinks there."""
        self._journal.prepare()
        identity = identify(self._journal, self._program, self._directory)
        latest = self._journal.latest_commit()
        if latest is not None:
            self._commit = decode_commit(self._journal.read(latest).body)
        self._states = states_for(self._program, self._commit, self._directory)
        self._snapshot = self._taken_snapshot()
        left = self._uncommitted_plan()
        read = (*self._positions(), *(left.inputs if left else ()))
        check_sources(self._program, read, self._directory)
        waiting = list(self._commits_to_publish())
        check_sinks(self._program, self._commit, waiting, self._directory)
        self._pending = None if left is None else self._revised(left)
        self._inputs = Inputs(
            self._program.physical, StoreLog(self._directory), read, self._open_source
        )
        try:
            self._open_sinks(identity.pipeline, waiting)
            # The last run may have ended between a commit and its acknowledgement.
            self._inputs.acknowledge(self._positions())
        except BaseException:
            self.give_up()
            raise

    def next_plan(self) -> Plan | None:
        """The plan to run now: the one that was left, or one for new input; None for none."""
        if self._pending is not None:
            return self._pending
        inputs = self._source().next()
        ending = None
        if not any(given.slices for given in inputs):
            ending = self._next_ending() if self._source().ended() else None
            if ending is None:
                return None
        plan = Plan(
            step=self.step + 1,
            revision=0,
            clock_ns=max(
                int(self._clock() * 1e9), 0 if not self._commit else self._commit.clock_ns
            ),
            code=self._code,
            inputs=inputs,
            placement=self._placement(() if self._commit is None else self._commit.placement),
            unkeyed_workers=self._settings.workers,
            ending=ending,
        )
        self._pending = self._planned(plan)
        return self._pending

    def _next_ending(self) -> str | None:
        """The operator whose keys come next to their end; None when all have.

        One operator a step, in the order of the graph: what an end gives is data to those behind.
        """
        endings = self._program.endings
        if self._commit is None:
            return None
        last = self._commit.ending
        place = endings.index(last) + 1 if last in endings else 0
        return endings[place] if place < len(endings) else None

    def ended(self) -> bool:
        """Whether every source has handed out its last input, and it is committed."""
        over = self._pending is None and self._source().ended()
        return over and self._next_ending() is None

    def run(self, plan: Plan) -> StepDone:
        """Run a plan to its commit. A plan that fails stays, and runs again after a restart."""
        started = self._clock()
        settled = self._agreed(plan)
        self._reached("ran", plan.step)
        self._publisher().check()
        commit = self._committed(plan, settled)
        self._reached("committed", plan.step)
        self._take_over(commit)
        self._publisher().add(output_of(commit.step, commit.staged))
        self._source().acknowledge(commit.positions)
        if commit.step % SWEEP_EVERY == 0:
            self.sweep()
        return self._done(settled, self._clock() - started)

    def wait_for_sinks(self, seconds: float) -> bool:
        """Wait until little enough is unpublished to plan another step; False after a while."""
        self._publisher().check()
        settings = self._settings
        return self._publisher().wait_below(
            settings.max_unpublished_steps, settings.max_unpublished_bytes, seconds
        )

    def sweep(self) -> int:
        """Remove what nobody needs any more."""
        if self._commit is None:
            return 0
        done = self.published
        self._unpublished = {s: f for s, f in self._unpublished.items() if s > done}
        waiting = [file for files in self._unpublished.values() for file in files]
        needed = self._source().log_files(self._positions())
        self._retention.trim(self.step, done)
        named = {self._commit.code, self._code} | ({self._pending.code} if self._pending else set())
        self._retention.sweep_code(named)
        return self._retention.sweep(self._commit, waiting, needed, self._clock())

    def close(self) -> None:
        """Publish what is committed, and end."""
        if self._inputs is not None:
            self._inputs.close()
        if self._publishing is not None:
            self._stop_publishing()
            self.sweep()

    def give_up(self) -> None:
        """End after a failure: what is committed is published if it can be, else it waits."""
        if self._inputs is not None:
            with contextlib.suppress(Exception):
                self._inputs.close()
        if self._publishing is not None:
            with contextlib.suppress(Exception):
                self._stop_publishing()

    def _stop_publishing(self) -> None:
        """Publish what is committed, and say durably that it is: no sink is asked for it again."""
        self._publisher().stop()
        if self._commit is not None and self.published >= self.step:
            self._journal.create(PublishedName(self.step), b"", secrets.token_hex(16))

    def _positions(self) -> tuple[Input, ...]:
        return () if self._commit is None else self._commit.positions

    def _source(self) -> Inputs:
        assert self._inputs is not None, "recover() comes first"
        return self._inputs

    def _placement(self, last: Sequence[Assignment]) -> tuple[Assignment, ...]:
        regions = [region.name for region in self._program.physical.regions]
        return equal_shares(regions, self._program.bins, self._settings.workers, last)

    def _publisher(self) -> Publishing:
        assert self._publishing is not None, "recover() comes first"
        return self._publishing

    def _uncommitted_plan(self) -> Plan | None:
        name = self._journal.latest_plan(self.step + 1)
        return None if name is None else decode_plan(self._journal.read(name).body)

    def _revised(self, plan: Plan) -> Plan:
        """The plan, or a revision of it that fits this run.

        What a step reads stays as it was planned; who does the work may change, and so may the
        code, which is how a function that raised is mended.
        """
        placement = self._placement(plan.placement)
        if plan.code == self._code and plan.placement == placement:
            return plan
        revised = msgspec.structs.replace(
            plan,
            revision=plan.revision + 1,
            code=self._code,
            placement=placement,
            unkeyed_workers=self._settings.workers,
        )
        return self._planned(revised)

    def _planned(self, plan: Plan) -> Plan:
        name = PlanName(plan.step, plan.revision)
        outcome = self._journal.create(name, encode(plan), secrets.token_hex(16))
        if isinstance(outcome, Taken):
            plan = decode_plan(outcome.entry.body)
        elif isinstance(outcome, Trimmed):
            raise _overtaken(plan.step)
        self._reached("planned", plan.step)
        return plan

    def _open_sinks(self, pipeline: str, waiting: Sequence[Commit]) -> None:
        publishers: dict[str, Publisher] = {}
        for name, node in self._program.sinks.items():
            schema = self._program.physical.schemas[node.id]
            context = SinkContext(
                self._directory, pipeline, name, schema, self._frames, self._reached
            )
            publishers[name] = node.sink.open(context)
        done = dict.fromkeys(publishers, self.step)
        for commit in waiting:
            self._unpublished[commit.step] = commit.staged
        if self._commit is not None and waiting:
            done |= {n: s for n, s in self._commit.published.items() if n in publishers}
        self._publishing = Publishing(publishers, done, self._reached)
        for step, staged in sorted(self._unpublished.items()):
            self._publishing.add(output_of(step, staged))
        self._publishing.start()

    def _commits_to_publish(self) -> Iterator[Commit]:
        if self._commit is None or self._journal.find(PublishedName(self.step)) is not None:
            return
        done = min(self._commit.published.values(), default=self._commit.step)
        for step in range(done + 1, self._commit.step):
            yield decode_commit(self._journal.read(CommitName(step)).body)
        yield self._commit

    def _agreed(self, plan: Plan) -> Settled:
        why = ""
        expected = expected_tasks(self._program.physical, plan)
        for _ in range(ATTEMPTS):
            self._source().check(plan.inputs)
            reports = self._plane.run(plan, self._states)
            self._source().check(plan.inputs)
            settled = settle(self._states, reports, expected)
            if isinstance(settled, Settled):
                return settled
            why = settled.why
            self._reached(f"disagreed: {why}", plan.step)
        raise AttemptsDisagree(
            f"Step {plan.step} ran {ATTEMPTS} times and its tasks never agreed: {why}",
            do="Executors are probably lost again and again; see Spark's log. Running the "
            "pipeline again repeats the step.",
        )

    def _committed(self, plan: Plan, settled: Settled) -> Commit:
        positions = {given.source: given for given in self._positions()} | {
            given.source: msgspec.structs.replace(given, slices=()) for given in plan.inputs
        }
        commit = Commit(
            step=plan.step,
            revision=plan.revision,
            clock_ns=plan.clock_ns,
            code=plan.code,
            positions=tuple(positions[name] for name in sorted(positions)),
            placement=plan.placement,
            states=settled.states,
            staged=settled.staged,
            counts=settled.counts,
            published=self._publisher().done(),
            ending=plan.ending,
        )
        name = CommitName(plan.step)
        outcome = self._journal.create(name, encode(commit), secrets.token_hex(16))
        if isinstance(outcome, Taken):
            return decode_commit(outcome.entry.body)
        if isinstance(outcome, Trimmed):
            raise _overtaken(plan.step)
        return commit

    def _take_over(self, commit: Commit) -> None:
        self._commit = commit
        self._pending = None
        self._states = commit.states
        self._snapshot = self._taken_snapshot()
        self._unpublished[commit.step] = commit.staged

    def _taken_snapshot(self) -> Snapshot:
        commit = self._commit
        placement = self._placement(()) if commit is None else commit.placement
        clock_ns = 0 if commit is None else commit.clock_ns
        return snapshot_of(self.step, clock_ns, self._program.bins, self._states, placement)

    def _done(self, settled: Settled, seconds: float) -> StepDone:
        parts = dict(settled.seconds)
        parts |= getattr(self._plane, "timings", {})
        return StepDone(
            self.step,
            rows_read(self._program.physical, settled.counts),
            sum(sum(state.live) for state in self._states),
            seconds,
            parts,
        )


def _overtaken(step: int) -> StoreError:
    return StoreError(
        f"Step {step} is long over: another process has gone on with this pipeline",
        do="End one of the two, and let the other go on.",
    )
