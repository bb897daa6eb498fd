"""The plan of a step: everything that determines it, durable before it runs."""

from __future__ import annotations

import msgspec

from anabranch.records.placed import Assignment
from anabranch.records.profiles import ProfileKind, ProfileRequest
from anabranch.records.shares import members
from anabranch.records.slices import Slice


class Input(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step reads from one source, and the source's position afterwards.

    ``files`` are the files in the store that the position needs. ``ended``: no rows follow these.
    ``asked_seconds`` is how long before the input was taken its source was last asked and had no
    more than this; None if it may have had more, or if nobody wants to know.
    """

    source: str
    slices: tuple[Slice, ...]
    position: msgspec.Raw
    files: tuple[str, ...] = ()
    ended: bool = False
    asked_seconds: float | None = None

    def after(self) -> Input:
        """The position alone."""
        return Input(self.source, (), self.position, self.files)


class RegionMessage(msgspec.Struct, frozen=True):
    """A message of ``anabranch.messages`` to every worker with a task of a region, as JSON."""

    region: str
    message: msgspec.Raw


class PlannedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a committed part plans for a step, and the value it was planned from.

    ``messages`` go to whoever has a task in the step. So they need no change if a revision of the
    plan places bins on other workers.
    """

    value: msgspec.Raw
    planned: msgspec.Raw
    messages: tuple[RegionMessage, ...] = ()


class WorkerMessage(msgspec.Struct, frozen=True):
    """A message of ``anabranch.messages`` to one worker of a region, as JSON."""

    region: str
    worker: int
    message: msgspec.Raw


class Plan(msgspec.Struct, frozen=True):
    """Everything that determines a step. A revision changes only the placement and the code.

    ``started_with`` is the number of workers that the run was started with. ``profile`` says whose
    tasks are profiled; it changes no result and is omitted if unset.

    ``parts`` is what the committed parts plan, by name; ``messages`` is what they tell single
    workers. Parts and messages about the placement change with it. ``helping`` are workers that
    have a task of a region without owning bins of it, ``helping_next`` those of the next step, if
    they differ.
    """

    step: int
    revision: int
    clock_ns: int
    code: str
    inputs: tuple[Input, ...]
    placement: tuple[Assignment, ...]
    unkeyed_workers: int
    started_with: int | None = None
    profile: ProfileRequest | msgspec.UnsetType = msgspec.UNSET
    parts: dict[str, PlannedPart] = {}
    messages: tuple[WorkerMessage, ...] = ()
    helping: tuple[tuple[str, int], ...] = ()
    helping_next: tuple[tuple[str, int], ...] | None = None

    def workers(self, region: str | None) -> tuple[int, ...]:
        """The workers that have a task of a region; None for tasks without a region."""
        if region is None:
            return tuple(range(self.unkeyed_workers))
        owners = members(each for each in self.placement if each.region == region)
        helping = (worker for name, worker in self.helping if name == region)
        return tuple(sorted({*owners, *helping}))

    def profile_of(self, region: str | None, worker: int) -> ProfileKind | None:
        """How a task is profiled, if at all."""
        request = self.profile
        if request is msgspec.UNSET or not request.is_about(region, worker):
            return None
        return request.kind

    def followed_by(self, inputs: tuple[Input, ...]) -> Plan:
        """A guess at the next plan, to prepare it.

        Bins may move meanwhile, but most likely the same workers have tasks.
        """
        helping = self.helping if self.helping_next is None else self.helping_next
        return msgspec.structs.replace(
            self,
            step=self.step + 1,
            revision=0,
            inputs=inputs,
            helping=helping,
            helping_next=None,
            profile=msgspec.UNSET,
        )

    def reader(self, source: str, partition: int) -> int:
        """The worker that reads a partition; round-robin if the plan assigns none."""
        for each in self.placement:
            if each.source and each.region == source:
                return each.workers[partition % len(each.workers)]
        return partition % max(self.unkeyed_workers, 1)

    def partitions(self, source: str) -> int:
        """How many partitions a source has: those that are assigned, and those that it reads."""
        placed = [len(each.workers) for each in self.placement if each.region == source]
        slices = (part for given in self.inputs if given.source == source for part in given.slices)
        return max([1, *placed, *((part.partition or 0) + 1 for part in slices)])

    def assignment(self, region: str) -> Assignment:
        """The assignment of a region."""
        return next(each for each in self.placement if each.region == region)


decode_plan = msgspec.json.Decoder(Plan).decode
