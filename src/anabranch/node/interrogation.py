"""The workers' answers: what each of their bins had to do, and which they have copied."""

from __future__ import annotations

from collections import Counter

import msgspec

from anabranch.messages import BinCopied, PartAnswer
from anabranch.node.step_outcome import StepOutcome
from anabranch.plan.physical import Physical
from anabranch.progress.dataflow.times import PART as FRONTIERS
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan
from anabranch.records.worker_load import BinLoad, WorkerLoad
from anabranch.rescale.costs import Prefetched
from anabranch.rescale.step_moves import PART as RESCALE
from anabranch.rescale.step_moves import RescaleReport


def worker_loads(physical: Physical, plan: Plan, settled: StepOutcome) -> tuple[WorkerLoad, ...]:
    """What the workers of a step say of their bins, in every step.

    Keys are those that were registered and not saved: all others are in the commit. Useful seconds
    of a worker are spread over its bins as its rows are.
    """
    found: list[WorkerLoad] = []
    more = _registered(settled)
    for assignment in plan.placement:
        rows = _rows(physical, assignment, settled)
        spent = _seconds(physical, assignment.region, settled)
        owned: dict[int, list[int]] = {}
        for number, worker in enumerate(assignment.workers):
            owned.setdefault(worker, []).append(number)
        for worker, bins in sorted(owned.items()):
            total = sum(rows[number] for number in bins)
            each = spent.get(worker, 0.0) / total if total else 0.0
            loads = tuple(
                BinLoad(
                    keys=more[assignment.region, number],
                    rows=float(rows[number]),
                    seconds=rows[number] * each,
                )
                for number in bins
            )
            generation = assignment.generation
            found.append(WorkerLoad(assignment.region, worker, generation, tuple(bins), loads))
    return tuple(found)


def part_reports(physical: Physical, plan: Plan, settled: StepOutcome) -> dict[str, msgspec.Raw]:
    """What the committed parts are told of a step: the answers of workers, by part."""
    answers: dict[str, list[PartAnswer]] = {}
    for answer in settled.answers:
        answers.setdefault(answer.part, []).append(answer)
    found: dict[str, object] = {**answers}
    if RESCALE in plan.parts:
        found[RESCALE] = RescaleReport(prefetched(physical, settled), moving_seconds(settled))
    if FRONTIERS in plan.parts:
        found[FRONTIERS] = settled.times
    return {part: msgspec.Raw(msgspec.json.encode(said)) for part, said in found.items()}


def _registered(settled: StepOutcome) -> Counter[tuple[str, int]]:
    """The keys that operators have registered beyond those that they have saved, by bin."""
    live = {state.operator: state.live for state in settled.states}
    found: Counter[tuple[str, int]] = Counter()
    for report in settled.registered:
        saved = live.get(report.operator)
        for number, keys in zip(report.bins, report.keys, strict=True):
            found[report.region, number] += max(keys - (saved[number] if saved else 0), 0)
    return found


def prefetched(physical: Physical, settled: StepOutcome) -> tuple[Prefetched, ...]:
    """The bins that are complete in the home of their new owner, by the word of all its tasks."""
    regions = {group.name: group.region for level in physical.levels for group in level.groups}
    report: dict[tuple[str, int], list[tuple[BinCopied, ...]]] = {}
    for (_, group, worker), copied in settled.copied.items():
        region = regions.get(group)
        if region is not None:
            report.setdefault((region, worker), []).append(copied)
    found: list[Prefetched] = []
    for (region, worker), tasks in report.items():
        for number in sorted(set.intersection(*({each.bin for each in task} for task in tasks))):
            own = [each for task in tasks for each in task if each.bin == number]
            size, seconds = sum(each.bytes for each in own), sum(each.seconds for each in own)
            found.append(Prefetched(region, number, worker, size, seconds))
    return tuple(found)


def moving_seconds(settled: StepOutcome) -> float:
    """What moving cost the step: the time of the worker that spent most on it.

    Workers copy beside each other, and a step waits for the slowest; a worker's own tasks may come
    one after the other.
    """
    spent: dict[int, float] = {}
    for (_, _, worker), seconds in settled.moving.items():
        spent[worker] = spent.get(worker, 0.0) + seconds
    return max(spent.values(), default=0.0)


def _rows(physical: Physical, assignment: Assignment, settled: StepOutcome) -> Counter[int]:
    """The rows that came to each bin of a region, or that were read of each partition."""
    found: Counter[int] = Counter()
    if assignment.source:
        for each in settled.read:
            if each.source == assignment.region:
                found[each.partition % len(assignment.workers)] += each.rows
        return found
    places = {
        edge.place
        for level in physical.levels
        for group in level.groups
        if group.region == assignment.region
        for edge in level.inputs
        if edge.consumer in group.operators
    }
    for count in settled.counts:
        if count.place in places:
            found.update(dict(zip(count.bins, count.bin_rows, strict=True)))
    return found


def _seconds(physical: Physical, region: str, settled: StepOutcome) -> dict[int, float]:
    """How long each worker of a region was busy."""
    names = {g.name for level in physical.levels for g in level.groups if g.region == region}
    names.add(region)  # the tasks that read a source go by its name
    found: dict[int, float] = {}
    for (_, group, worker), seconds in settled.useful.items():
        if group in names:
            found[worker] = found.get(worker, 0.0) + seconds
    return found
