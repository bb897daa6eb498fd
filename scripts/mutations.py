"""The protocol lines that ``scripts/mutants.py`` breaks, and what each of them is for.

A mutation names a line, or some lines, by their text, which must be in the file exactly once: one
that the code has moved away from is an error and cannot rot unseen.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = "src/anabranch"

NODE = (
    "tests/node/test_node_machine.py",
    "tests/node/test_core_orders.py",
    "tests/node/test_core.py",
    "tests/node/test_replaced.py",
)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A line, what stands there instead, and what that breaks.

    What finds it stands in ``mutation_finders.json``. Where that does not find it any more, the
    simulation looks for it, and then ``tests`` do. Without ``simulated`` the simulation does not.
    """

    name: str
    room: str
    line: str
    replacement: str
    breaks: str
    tests: tuple[str, ...] = ()
    simulated: bool = True

    @property
    def file(self) -> str:
        """Where it is, below the tree."""
        return f"{SOURCES}/{self.room}"


def apply(mutation: Mutation, text: str) -> str:
    """The text of a file with the mutation in it; ``ValueError`` if its line is not there.

    >>> apply(Mutation("m", "a.py", "sync(x)", "pass", "no sync"), "open(x); sync(x)")
    'open(x); pass'
    """
    if text.count(mutation.line) != 1:
        times = text.count(mutation.line)
        raise ValueError(f"{mutation.name}: {mutation.file} has its line {times} times, not once")
    return text.replace(mutation.line, mutation.replacement)


FENCES = (
    Mutation(
        "lower-leases-are-not-fenced",
        "journal/file_directory.py",
        "            if found and int(found[1]) <= self.number and name != self.aside.name:\n",
        "            if found and int(found[1]) < 0:\n",
        "a coordinator that was replaced goes on writing",
        tests=("tests/journal",),
    ),
    Mutation(
        "a-lease-is-not-needed-to-write",
        "journal/file_directory.py",
        "        return self._directory.create(name, data, self.aside)\n",
        "        return self._directory.create(name, data)\n",
        "a coordinator that was replaced goes on writing",
        tests=("tests/journal",),
    ),
    Mutation(
        "a-lease-is-not-needed-to-remove",
        "journal/file_directory.py",
        "        return move_file(self._directory.root / name, aside) and remove_file(aside)\n",
        "        return remove_file(self._directory.root / name)\n",
        "a trim that a take-over interrupts goes on after it",
        tests=("tests/journal/test_port.py",),
    ),
    Mutation(
        "the-node-obeys-a-replaced-leader",
        "node/node_machine.py",
        "        if leader < newest:\n",
        "        if leader < 0:\n",
        "orders of a coordinator that was replaced are carried out",
        tests=NODE,
    ),
    Mutation(
        "a-new-leader-inherits-orders",
        "node/node_machine.py",
        "            self.to_open = self.to_close = None\n            self.grown()\n",
        "            self.grown()\n",
        "what the former leader wanted is still carried out",
        tests=NODE,
    ),
    Mutation(
        "opened-without-the-lead",
        "node/core.py",
        "            check_leads(self._journal, leader)\n",
        "            pass\n",
        "sinks take back what a newer leader has committed",
        tests=NODE,
    ),
    Mutation(
        "published-without-the-lead",
        "node/outbox.py",
        "            if not is_led():\n                return None\n",
        "            is_led()\n",
        "a node that was left behind gives to sinks what is taken back",
        tests=("tests/node/test_replaced.py", "tests/node/test_outbox.py"),
    ),
    Mutation(
        "a-sink-is-opened-without-the-lead",
        "node/outbox.py",
        "            if not is_led():\n                return False\n",
        "            is_led()\n",
        "a node that was left behind takes back from a sink that comes back",
        tests=("tests/node/test_away_sinks.py",),
    ),
    Mutation(
        "swept-without-the-lead",
        "node/chores.py",
        "                if not is_led():\n                    return False\n",
        "                is_led()\n",
        "a node that was left behind removes files of others",
        tests=NODE,
    ),
)

SYNCS = (
    Mutation(
        "no-sync-of-a-files-name",
        "store/files.py",
        "            _discard(written)\n        sync_directory(room)\n",
        "            _discard(written)\n",
        "a power cut takes entries of the journal back",
    ),
    Mutation(
        "no-sync-of-an-entrys-bytes",
        "store/files.py",
        "            _sync({path: handle})\n",
        "            pass\n",
        "a power cut tears entries of the journal",
    ),
    Mutation(
        "no-sync-of-bulk-files",
        "store/files.py",
        "            _sync(handles)\n    except BaseException:\n",
        "    except BaseException:\n",
        "a power cut tears runs and staged output that a commit names",
    ),
    Mutation(
        "no-sync-of-a-new-directory",
        "store/files.py",
        "    sync_directory(path.parent)\n    disk().durable_directories().add(str(path))\n",
        "    disk().durable_directories().add(str(path))\n",
        "a power cut takes a directory back, with what is in it",
    ),
    Mutation(
        "no-sync-of-an-entry-that-was-found",
        "journal/journal.py",
        "        self.settle(names[-1])\n",
        "        pass\n",
        "steps go on from a commit or a plan that a power cut takes back",
        tests=("tests/journal",),
    ),
    Mutation(
        "no-sync-after-a-checkpoint-is-trimmed",
        "journal/journal.py",
        "            self.settle(gone[0])\n",
        "            pass\n",
        "a checkpoint is back after a power cut, without its files",
        tests=("tests/journal",),
    ),
    Mutation(
        "no-sync-of-published-files",
        "sinks/file.py",
        "        sync_directory(self.target)\n",
        "        pass\n",
        "a manifest names files that a power cut took back",
    ),
    Mutation(
        "no-sync-after-manifests-are-taken-back",
        "sinks/target.py",
        "    sync_directory(manifests)\n",
        "    pass\n",
        "a manifest is back after a power cut, without its files",
        tests=("tests/sinks/test_file.py",),
    ),
    Mutation(
        "no-sync-after-files-are-taken-back",
        "sinks/target.py",
        "    sync_files(touched)\n",
        "    pass\n",
        "a file of a step that was taken back is there again",
        tests=("tests/sinks/test_file.py",),
    ),
)

ORDER = (
    Mutation(
        "the-node-is-told-before-the-commit",
        "coordinator/stepping.py",
        "    return [WriteCommit(memory.journal.branch, commit)]\n",
        "    told = Give(plans.commit_order(memory, commit))\n"
        "    return [told, WriteCommit(memory.journal.branch, commit)]\n",
        "output is published and input acknowledged that no commit names",
    ),
    Mutation(
        "a-step-runs-before-its-plan-is-written",
        "coordinator/recovering.py",
        "    if plan != memory.journal.plan:\n",
        "    if False:\n",
        "a step that was interrupted runs again with other input",
    ),
    Mutation(
        "a-commit-of-another-is-not-adopted",
        "coordinator/stepping.py",
        "    if not ours and commit.states != phase.result.states:\n",
        "    if False:\n",
        "the node goes on from an attempt that was not committed",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "a-step-runs-before-sinks-have-taken-back",
        "coordinator/recovering.py",
        "    if report.taking_back or not isinstance(report.state, Open):\n",
        "    if not isinstance(report.state, Open):\n",
        "once there is a commit, nobody orders the sink to take back any more",
        tests=("tests/coordinator/test_machine_away_sinks.py",),
    ),
    Mutation(
        "commits-are-not-told-again",
        "coordinator/recovering.py",
        "    return [Give(order) for order in [*orders, commit_order(memory, commit)]]\n",
        "    return []\n",
        "a step whose leader died is never published",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "a-manifest-before-its-files",
        "sinks/file.py",
        "        for file, published in zip(staged.files, manifest.files, strict=True):\n",
        "        create_manifest(self.target, sink, manifest, manifest.__eq__)\n"
        "        for file, published in zip(staged.files, manifest.files, strict=True):\n",
        "a crash leaves a manifest that names files which are not there",
    ),
    Mutation(
        "files-are-taken-back-before-manifests",
        "sinks/target.py",
        "    for name in sorted(_later(list_names(manifests), step), reverse=True):\n",
        "    for name in ():\n",
        "a step that was taken back counts as published",
    ),
    Mutation(
        "tasks-need-not-agree",
        "node/step_outcome.py",
        "        if len(attempts) > 1:\n",
        "        if len(attempts) > 2:\n",
        "rows of one attempt and state of another are committed together",
        tests=("tests/node/test_step_outcome.py",),
    ),
    Mutation(
        "a-task-need-not-report",
        "node/step_outcome.py",
        "    if missing:\n",
        "    if False:\n",
        "the state of a task that did not report is lost",
    ),
    Mutation(
        "input-need-not-be-read-as-planned",
        "node/step_outcome.py",
        "    for source, partition in _not_as_planned(planned, read):\n",
        "    for source, partition in ():\n",
        "rows that no task has read are passed over",
        tests=("tests/node/test_source_regions.py",),
    ),
)

TRIMS = (
    Mutation(
        "plans-of-a-replay-are-trimmed",
        "coordinator/jobs/checkpoint.py",
        "        needed = min(oldest, memory.published_step) + 1\n",
        "        needed = memory.published_step + 1\n",
        "lost state cannot be computed again",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "steps-that-wait-for-a-sink-are-trimmed",
        "coordinator/jobs/checkpoint.py",
        "        needed = min(oldest, memory.published_step) + 1\n",
        "        needed = oldest + 1\n",
        "a restart forgets output that was not published",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "the-last-commit-is-trimmed",
        "coordinator/driver/journal_writer.py",
        "        first = min(effect.below, stands_at(self._journal, effect.branch))\n",
        "        first = effect.below\n",
        "a branch without steps loses the step that it begins at",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "swept-before-it-is-trimmed",
        "coordinator/plans.py",
        "    kept = [*journal.checkpoints, *memory.checkpoint.untrimmed]\n",
        "    kept = [*journal.checkpoints]\n",
        "a checkpoint is in the journal without its files",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "a-trimmed-name-is-used-again",
        "journal/journal.py",
        "        if floor is None:\n            return Won()\n",
        "        if floor != 0:\n            return Won()\n",
        "a coordinator that slept commits a step for the second time",
        tests=("tests/journal",),
    ),
)

SWEEPS = (
    Mutation(
        "files-of-later-steps-are-swept",
        "store/retention.py",
        " if n not in needed and file_step(n) <= step]\n",
        " if n not in needed]\n",
        "files go that the step under way has written",
        tests=("tests/store/test_retention.py", *NODE),
    ),
    Mutation(
        "no-grace-for-readers",
        "store/retention.py",
        " if now - since >= self._grace]\n",
        " if now >= since]\n",
        "a query finds files gone that it has begun to read",
        tests=("tests/store/test_retention.py",),
    ),
    Mutation(
        "checkpoints-are-swept",
        "coordinator/plans.py",
        "        states=(journal.states, *(checkpoint.states for checkpoint in kept)),\n",
        "        states=(journal.states,),\n",
        "the files of a kept checkpoint go",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "a-checkpoint-under-way-is-swept",
        "coordinator/plans.py",
        "    if memory.checkpoint.under_way is not None:\n        kept.append(",
        "    if memory.checkpoint.under_way is None and journal.step < 0:\n        kept.append(",
        "a checkpoint is kept without its files",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "the-state-of-the-node-is-swept",
        "node/chores.py",
        "            [*order.states, *states], [*kept, *opened.outbox.staged(), *staged], files\n",
        "            order.states, [*kept, *opened.outbox.staged(), *staged], files\n",
        "files go that the node works with",
        tests=NODE,
    ),
    Mutation(
        "staged-output-is-swept",
        "coordinator/plans.py",
        "outputs=tuple(memory.unrecorded[number] for number in sorted(memory.unrecorded)),\n",
        "outputs=(),\n",
        "output that waits for a sink goes",
        tests=("tests/coordinator",),
    ),
)

CHECKS = (
    Mutation(
        "a-run-is-not-verified",
        "runs/run_file.py",
        "    if not has_checksum(data, checksum):\n",
        "    if False:\n",
        "a damaged run is taken for the committed one",
        tests=("tests/runs",),
    ),
    Mutation(
        "files-are-not-looked-for-when-opened",
        "node/opening.py",
        "    check_files(around.store, state_files(states), whole=order.whole)\n",
        "",
        "lost state is found only when a step needs it",
        tests=("tests/node/test_core.py", "tests/node/test_damage.py"),
    ),
    Mutation(
        "a-replay-is-not-compared",
        "coordinator/jobs/replay.py",
        "        found = differences(commit.counts, result.counts)\n",
        "        found = differences(commit.counts, commit.counts)\n",
        "a replay that comes to something else is committed as a repair",
        tests=("tests/coordinator",),
    ),
    Mutation(
        "an-entry-is-not-verified",
        "journal/envelope.py",
        "    if _checksum(FORMAT, said, nonce, body) != int(crc, 16):\n",
        "    if False:\n",
        "a damaged entry is taken for what was committed",
        tests=("tests/journal/test_journal.py",),
        simulated=False,
    ),
)

GENERATIONS = (
    Mutation(
        "owners-change-in-the-same-generation",
        "records/shares.py",
        "    generation = assignment.generation + 1\n",
        "    generation = assignment.generation\n",
        "late answers of the owners before are taken for those of the new ones",
    ),
    Mutation(
        "an-older-order-to-open-is-obeyed",
        "node/node_machine.py",
        "        if order.number <= newest:\n",
        "        if order.number < 0:\n",
        "an order that comes twice opens the state before what was done since",
        tests=NODE,
    ),
    Mutation(
        "an-order-for-what-was-open-is-obeyed",
        "node/node_machine.py",
        "        return self.to_open is None and opened in (0, self.opened)\n",
        "        return self.to_open is None\n",
        "a step or a close that was ordered before is carried out after it was opened anew",
        tests=NODE,
    ),
    Mutation(
        "an-older-revision-runs",
        "node/node_machine.py",
        " or plan.revision <= max(revisions, default=-1):\n",
        ":\n",
        "a plan that was revised runs after its revision",
        tests=NODE,
    ),
    Mutation(
        "a-commit-of-any-step-is-obeyed",
        "node/node_machine.py",
        "        if self.state != Open(order.step) or order.step != self.committed + 1:\n",
        "        if not isinstance(self.state, Open) or self.ran is None:\n",
        "an order that comes late commits another step",
        tests=NODE,
    ),
    Mutation(
        "the-clock-goes-back",
        "coordinator/outlook.py",
        "    return max(memory.clock_ns, memory.journal.clock_ns)\n",
        "    return memory.clock_ns\n",
        "the clock of a step is before that of the step before it",
    ),
)

HAND_OVER = (
    Mutation(
        "the-node-goes-on-from-the-state-before",
        "node/node_machine.py",
        "        self.states = self.ran[1].states\n",
        "        pass\n",
        "a step begins without what the step before it has made",
    ),
    Mutation(
        "keys-are-not-counted",
        "node/step_outcome.py",
        "                live[number] = report.live[number]\n",
        "                pass\n",
        "nobody knows how many keys a bin has",
    ),
    Mutation(
        "sources-are-not-told-what-is-committed",
        "node/offers.py",
        "                    each.attended.acknowledge(bytes(given.position))\n",
        "                    pass\n",
        "a source keeps everything that it ever gave",
    ),
    Mutation(
        "steps-are-published-newest-first",
        "node/outbox.py",
        "        return sorted(step for step in self._waiting if step > sink.done)\n",
        "        later = [step for step in self._waiting if step > sink.done]\n"
        "        return sorted(later, reverse=True)\n",
        "a sink is given a step before the one that came first",
        tests=("tests/node/test_outbox.py",),
    ),
    Mutation(
        "bins-in-hand-over-are-forgotten",
        "rescale/controller.py",
        "        handing=moves.collect,\n",
        "        handing=(),\n",
        "a bin that was collected is acquired by nobody",
    ),
    Mutation(
        "owners-stay-when-bins-are-acquired",
        "rescale/controller.py",
        "    return reassigned(placement, (move.end for move in rescale.handing))\n",
        "    return placement\n",
        "rows go on to whoever has handed the bin over",
    ),
    Mutation(
        "the-oldest-row-wins-a-merge",
        "runs/rows.py",
        "    whole = concat_rows(layout.schema, parts)\n    hashes",
        "    whole = concat_rows(layout.schema, parts[::-1])\n    hashes",
        "a merge brings back what a key was before",
    ),
)

MUTATIONS = (*FENCES, *SYNCS, *ORDER, *TRIMS, *SWEEPS, *CHECKS, *GENERATIONS, *HAND_OVER)
