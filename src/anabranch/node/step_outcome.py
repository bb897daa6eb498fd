"""From the reports of a step to its commit: whose attempts count, and what they came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from anabranch.messages import (
    Attempt,
    BinCopied,
    PartAnswer,
    PartitionRead,
    Registered,
    Report,
    StateReport,
    Tally,
)
from anabranch.plan.physical import Physical
from anabranch.progress.dataflow.times import TimesReport
from anabranch.records.commit import RowCount
from anabranch.records.home_use import HomeUse, total_use
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.profiles import TaskProfile
from anabranch.records.run_list import replace_all
from anabranch.records.staged_file import StagedFile

#: level, group and worker: which task, whatever the attempt
Task = tuple[int, str, int]
#: source, partition and first position of something that is read
ReadKey = tuple[str, int, int]

#: what a task does for its keys, of the seconds that it reports
USEFUL = ("lookup", "operator", "write")
#: what it does for bins that change their owner
MOVING = ("acquire", "prefetch")
_WRAP = 1 << 64


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step came to, from one consistent set of attempts.

    ``useful`` is how long each task was busy with its operators and their state, ``moving`` how
    long with bins that change their owner. ``registered`` and ``read`` are what operators and read
    tasks have told: keys, and rows by partition. ``copied`` are the bins that each task has copied
    to its home, ``homes`` is what all of them read and copied. ``profiles`` are those that were
    requested, ``answers`` those to questions of parts, ``times`` what was told of event time.
    """

    states: tuple[OperatorState, ...]
    staged: tuple[StagedFile, ...]
    counts: tuple[RowCount, ...]
    rows_merged: int
    seconds: dict[str, float]
    useful: dict[Task, float]
    registered: tuple[Registered, ...] = ()
    read: tuple[PartitionRead, ...] = ()
    homes: HomeUse = field(default_factory=HomeUse)
    copied: dict[Task, tuple[BinCopied, ...]] = field(default_factory=dict)
    moving: dict[Task, float] = field(default_factory=dict)
    profiles: tuple[TaskProfile, ...] = ()
    answers: tuple[PartAnswer, ...] = ()
    times: TimesReport = field(default_factory=TimesReport)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Tasks used different attempts of one task, or a report is missing: the step runs again."""

    why: str


def step_outcome(
    before: Sequence[OperatorState],
    reports: Sequence[Report],
    expected: Iterable[Task],
    planned: Mapping[ReadKey, int | None] = MappingProxyType({}),
) -> StepOutcome | Disagreement:
    """Agree on one attempt per task, and put together what those attempts did.

    ``expected`` are the tasks that every step has: each must have reported. ``planned`` is what
    read tasks were to read, with the number of rows where it is known: no row is left out and none
    comes twice, whatever the data plane did.
    """
    chosen = _agreed(reports, expected)
    if isinstance(chosen, Disagreement):
        return chosen
    ordered = [chosen[task] for task in sorted(chosen)]
    levels = [(report.attempt.level, each) for report in ordered for each in report.read]
    read = [each for _, each in levels]
    # Rows that several levels need are read for each of them.
    often = Counter((level, e.source, e.partition, e.start) for level, e in levels)
    for (_, source, partition, _), times in often.items():
        if times > 1:
            return Disagreement(f"partition {partition} of {source} was read {times} times")
    for source, partition in _not_as_planned(planned, read):
        return Disagreement(f"partition {partition} of {source} was not read as planned")
    return StepOutcome(
        _states(before, [state for report in ordered for state in report.states]),
        tuple(file for report in ordered for file in report.staged),
        _counts([tally for report in ordered for tally in report.tallies]),
        sum(state.rows_merged for report in ordered for state in report.states),
        _added(report.seconds for report in ordered),
        _spent(chosen, USEFUL),
        tuple(each for report in ordered for each in report.registered),
        tuple(read),
        total_use(report.homes for report in ordered),
        {task: report.copied for task, report in chosen.items()},
        _spent(chosen, MOVING),
        tuple(report.profile for report in ordered if report.profile is not None),
        tuple(answer for report in ordered for answer in report.answers),
        _times(ordered),
    )


def expected_tasks(physical: Physical, plan: Plan) -> list[Task]:
    """The tasks that a step has whatever its input: one per worker of every level."""
    found = []
    for level in physical.levels[1:]:
        for group in level.groups:
            if group.region is None and not level.exchange:
                continue
            found += [(level.number, group.name, worker) for worker in plan.workers(group.region)]
    return found


def planned_reads(physical: Physical, plan: Plan) -> dict[ReadKey, int | None]:
    """What read tasks are to read of sources whose rows have positions, and how many rows."""
    used = {edge.producer for level in physical.levels for edge in level.inputs}
    used |= {edge.producer for transform in physical.transforms for edge in transform.inputs}
    names = {source.name for source in physical.sources() if source.id in used}
    return {
        (given.source, part.partition, part.first): part.rows
        for given in plan.inputs
        for part in given.slices
        if given.source in names and part.partition is not None and part.first is not None
    }


def _not_as_planned(
    planned: Mapping[ReadKey, int | None], read: Iterable[PartitionRead]
) -> Iterator[tuple[str, int]]:
    """Partitions of which something else was read than was planned; or, twice, not the same."""
    found: dict[ReadKey, set[int]] = {}
    for each in read:
        if each.start is not None:
            found.setdefault((each.source, each.partition, each.start), set()).add(each.rows)
    for key in {*planned, *found}:
        rows = found.get(key, set())
        if key not in planned or len(rows) != 1 or planned[key] not in (None, *rows):
            yield key[0], key[1]


def rows_read(physical: Physical, counts: Sequence[RowCount]) -> int:
    """How many rows came in: those of each source's busiest edge."""
    by_place = {count.place: count.rows for count in counts}
    edges = [edge for level in physical.levels for edge in level.inputs]
    total = 0
    for source in physical.sources():
        own = [e for e in edges if e.producer == source.id]
        # Nobody counts before a transform: what it gives is the nearest that is known.
        own = own or [e for e in edges if source.id in _read_through(physical, e.producer)]
        total += max((by_place.get(e.place, 0) for e in own), default=0)
    return total


def _read_through(physical: Physical, producer: int) -> set[int]:
    """What a transform gets rows of, also by way of other transforms."""
    found: set[int] = set()
    for transform in physical.transforms:
        if transform.id == producer:
            for edge in transform.inputs:
                found |= {edge.producer} | _read_through(physical, edge.producer)
    return found


def task_of(attempt: Attempt) -> Task:
    """The task that an attempt is one of."""
    return attempt.level, attempt.group, attempt.worker


def _agreed(
    reports: Sequence[Report], expected: Iterable[Task]
) -> dict[Task, Report] | Disagreement:
    by_attempt = {report.attempt: report for report in reports}
    used: dict[Task, set[str]] = {}
    for report in reports:
        for attempt in report.consumed:
            used.setdefault(task_of(attempt), set()).add(attempt.attempt)
    for report in reports:
        used.setdefault(task_of(report.attempt), {report.attempt.attempt})
    for task, attempts in sorted(used.items()):
        if len(attempts) > 1:
            return Disagreement(f"{_named(task)} was used in {len(attempts)} different attempts")
    chosen: dict[Task, Report] = {}
    for task, attempts in used.items():
        attempt = Attempt(*task, next(iter(attempts)))
        if attempt not in by_attempt:
            return Disagreement(f"{_named(task)} was used in an attempt that did not report")
        chosen[task] = by_attempt[attempt]
    missing = [task for task in expected if task not in chosen]
    if missing:
        return Disagreement(f"{_named(missing[0])} did not report")
    return chosen


def _named(task: Task) -> str:
    level, group, worker = task
    return f"worker {worker} of {group} (level {level})"


def _states(
    before: Sequence[OperatorState], reported: Sequence[StateReport]
) -> tuple[OperatorState, ...]:
    after = []
    for state in before:
        mine = [r for r in reported if r.operator == state.operator]
        runs = replace_all(state.runs, [(r.owned, r.runs) for r in mine])
        live = list(state.live)
        for report in mine:
            for number in report.owned:
                live[number] = report.live[number]
        after.append(OperatorState(state.shape, runs, tuple(live), state.frontier))
    return tuple(after)


def _counts(tallies: Sequence[Tally]) -> tuple[RowCount, ...]:
    """What all tasks counted, place by place and bin by bin."""
    places: dict[str, dict[int, tuple[int, int]]] = {}
    for tally in tallies:
        bins = places.setdefault(tally.place, {})
        for number, rows, value in zip(tally.bins, tally.rows, tally.hashes, strict=True):
            had = bins.get(number, (0, 0))
            bins[number] = (had[0] + rows, (had[1] + value) % _WRAP)
    found = []
    for place, bins in sorted(places.items()):
        numbers = tuple(sorted(bins))
        counted = tuple(bins[number][0] for number in numbers)
        hashes = tuple(f"{bins[number][1]:016x}" for number in numbers)
        found.append(RowCount(place, sum(counted), numbers, counted, hashes))
    return tuple(found)


def _times(reports: Sequence[Report]) -> TimesReport:
    """What all tasks report of event time."""
    return TimesReport(
        tuple(each for report in reports for each in report.times),
        tuple(each for report in reports for each in report.pending),
        tuple(each for report in reports for each in report.wakes),
        tuple(each for report in reports for each in report.late),
    )


def _spent(chosen: Mapping[Task, Report], parts: Iterable[str]) -> dict[Task, float]:
    """How long each task was busy with these parts together."""
    return {task: sum(r.seconds.get(part, 0.0) for part in parts) for task, r in chosen.items()}


def _added(each: Iterable[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for seconds in each:
        for what, spent in seconds.items():
            total[what] = total.get(what, 0.0) + spent
    return total
