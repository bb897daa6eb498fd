"""Coordinator and node are processes that die, stop and are told to end; the pipeline goes on.

Everything published is compared with plain Python again and again, and every step says how often it
was executed.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable

import pytest

from anabranch.journal.entry_names import CheckpointName
from anabranch.node.address import read_node_address as read_node
from anabranch.protocol.status import Phase
from tests.spark.killing import FLOW, Coordinator, Site, until
from tests.spark.test_kill import committed, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("ANABRANCH_KILLS", "20"))


def goes_on(site: Site, what: str, since: float) -> None:
    """The pipeline makes steps again, and all that it has ever published is right."""
    site.more(1)
    site.took(f"{what}, next step committed", since)
    site.more(2)
    site.check()


def kill_coordinator_in_a_step(site: Site) -> None:
    before = site.running().node
    assert before is not None
    with site.held() as step:
        site.coordinator.kill()
        since = time.monotonic()
        site.run()
        status = site.running()
        site.took_to_go_on("coordinator killed in a step", since)
        assert status.node is not None
        assert (status.node.application, status.node.boot) == (before.application, before.boot)
        assert status.under_way is not None
        assert (status.under_way.step, status.under_way.revision) == (step, 0)
    goes_on(site, "coordinator killed in a step", since)
    assert site.executed()[step] == 1


def kill_coordinator(site: Site, moment: float) -> None:
    before = site.running().node
    assert before is not None
    time.sleep(moment)
    site.coordinator.kill()
    since = time.monotonic()
    site.run()
    status = site.running()
    site.took_to_go_on("coordinator killed", since)
    assert status.node is not None
    assert (status.node.application, status.node.boot) == (before.application, before.boot)
    goes_on(site, "coordinator killed", since)


def kill_node_in_a_step(site: Site) -> None:
    before = site.node()
    with site.held() as step:
        site.kill_node()
        since = time.monotonic()
        until(lambda: site.executed()[step] > 1, "the step on another node")
    goes_on(site, "node killed in a step", since)
    assert site.node().boot != before.boot


def kill_node(site: Site, moment: float) -> None:
    before = site.node()
    time.sleep(moment)
    site.kill_node(tree=True)
    since = time.monotonic()
    goes_on(site, "node killed", since)
    assert site.node().boot != before.boot


def kill_both(site: Site, moment: float, *, tree: bool) -> None:
    before = site.node()
    time.sleep(moment)
    site.coordinator.kill()
    site.kill_node(tree=tree)
    since = time.monotonic()
    site.run()
    goes_on(site, "both killed", since)
    assert site.node().boot != before.boot


def kill_in_a_checkpoint(site: Site, *, node: bool) -> None:
    """The node is stopped, so that a checkpoint is under way for as long as it takes."""
    site.more(1)
    pid = site.node().pid
    os.kill(pid, signal.SIGSTOP)
    client = site.client()
    asking = threading.Thread(target=lambda: _asked(site), daemon=True)
    asking.start()
    until(lambda: client.status().checkpoint, "a checkpoint under way")
    kept = {each.step for each in client.status().checkpoints}
    site.coordinator.kill()
    since = time.monotonic()
    if node:
        site.kill_node(tree=True)
    else:
        os.kill(pid, signal.SIGCONT)
    site.run()
    goes_on(site, f"{'both' if node else 'coordinator'} killed in a checkpoint", since)
    asking.join(60)
    assert kept <= {each.step for each in site.running().checkpoints}
    done = site.client().checkpoint(60)
    assert done.done
    assert done.step in {each.step for each in site.running().checkpoints}


def _asked(site: Site) -> None:
    try:
        site.client().checkpoint(60)
    except Exception as error:  # whoever is asked is killed
        print(f"the checkpoint was not answered: {type(error).__name__}")


def change_the_code(site: Site) -> None:
    """The coordinator dies in a step; the next one is given another program."""
    before = site.node()
    flow = site.base / FLOW.name
    old = flow.read_text()
    with site.held() as step:
        site.coordinator.kill()
        since = time.monotonic()
        flow.write_text(old.replace("VERSION = 1\n", "VERSION = 2\n"))
        site.repeated.add(step)
        site.run()
        until(lambda: site.executed()[step] > 1, "the step on a new node")
        under_way = site.running().under_way
        assert under_way is not None
        assert (under_way.step, under_way.revision) == (step, 1)
    goes_on(site, "coordinator killed, code changed", since)
    assert site.node().boot != before.boot
    versions = site.versions()
    assert {s: v for s, v in versions.items() if s < step} == {s: {1} for s in range(1, step)}
    assert all(v == {2} for s, v in versions.items() if s >= step)
    assert max(versions) > step


def fence(site: Site) -> None:
    """A coordinator that was stopped finds that another one has taken over."""
    first = site.coordinator
    before = site.node()
    site.more(1)
    first.send(signal.SIGSTOP)
    refused = site.run()
    assert refused.ended() == 3
    assert f"[directory.in_use] Process {first.pid} on " in " ".join(refused.printed().split())
    since = time.monotonic()
    site.run("--take-over")
    goes_on(site, "taken over", since)
    step = committed(site.base)
    first.send(signal.SIGCONT)
    assert first.ended() == 1
    assert "[coordinator.fenced]" in first.printed()
    assert site.running(step + 3).step > step
    assert site.node().boot == before.boot
    site.check()


def drain_a_stuck_step(site: Site, report: signal.Signals) -> None:
    """Whoever asks is answered while a step does not end; when it does, all ends in order."""
    with site.held() as step:
        client = site.client()
        assert client.pause().status.phase is Phase.PAUSING
        assert client.start().status.phase is Phase.RUNNING
        site.coordinator.send(report)
        until(lambda: client.status().phase is Phase.STOPPING, "the drain")
        assert not client.shutdown(wait=False).done
        status = client.status()
        assert status.under_way is not None
        assert status.under_way.step == step
        assert committed(site.base) == step - 1
    drained(site, site.coordinator)
    assert committed(site.base) == step


def drained(site: Site, run: Coordinator) -> None:
    """The process has ended in order: everything is published, and the last step is kept."""
    assert run.ended() == 0, run.printed()
    step = committed(site.base)
    assert f"Stopped after step {step}: " in run.printed()
    assert f"published up to step {step}." in run.printed()
    assert (site.state / "journal" / str(CheckpointName(step, 0))).exists()
    assert not (site.state / "coordinator.json").exists()
    # The node removes its address last, a moment after it has told the coordinator.
    late = time.monotonic() + 15
    while read_node(site.state) is not None and time.monotonic() < late:
        time.sleep(0.05)
    assert read_node(site.state) is None


def interrupt_twice(site: Site) -> None:
    """The second Ctrl-C stops at once, although a step is stuck."""
    run = site.coordinator
    with site.held() as step:
        site.repeated.add(step)
        run.send(signal.SIGINT)
        until(lambda: "Ctrl-C again" in run.printed(), "the first Ctrl-C")
        assert run.process.poll() is None
        run.send(signal.SIGINT)
        assert run.ended() == 130, run.printed()
        assert committed(site.base) == step - 1
        assert read_node(site.state) is None


def started_again(site: Site, what: str) -> None:
    since = time.monotonic()
    site.run()
    goes_on(site, what, since)


def test_killed_stopped_and_told_to_end_in_every_way(site: Site, seed: int) -> None:
    """Once in each way; at random moments and again and again in the long runs."""
    chance = random.Random(seed)
    kill_coordinator_in_a_step(site)
    fence(site)
    kill_in_a_checkpoint(site, node=False)
    change_the_code(site)
    kill_node_in_a_step(site)
    kill_in_a_checkpoint(site, node=True)
    interrupt_twice(site)
    started_again(site, "interrupted twice")
    drain_a_stuck_step(site, chance.choice([signal.SIGTERM, signal.SIGINT]))
    right_to_the_end(site)


def right_to_the_end(site: Site) -> None:
    """Output and state are those of plain Python, up to the last step."""
    steps = committed(site.base)
    first, second, mixed, counted = site.feed.expected(steps)
    assert sorted(site.first(steps)) == sorted(first)
    assert sorted(rows_of(site.base, "second")) == sorted(second)
    assert site.kept("chain") == set(mixed.items())
    assert site.kept("second") == {(key, *values) for key, values in counted.items()}


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_killed_in_random_ways(site: Site, seed: int) -> None:
    chance = random.Random(seed)
    ways: list[Callable[[], None]] = []
    for number in range(KILLS):
        moment, odd = chance.random() * 2, number % 2 == 1
        ways += [
            lambda m=moment, o=odd: (  # type: ignore[misc]
                kill_coordinator_in_a_step(site) if o else kill_coordinator(site, m)
            ),
            lambda m=moment, o=odd: (  # type: ignore[misc]
                kill_node_in_a_step(site) if o else kill_node(site, m)
            ),
            lambda m=moment, o=odd: kill_both(site, m, tree=o),  # type: ignore[misc]
            lambda o=odd: kill_in_a_checkpoint(site, node=o),  # type: ignore[misc]
        ]
    chance.shuffle(ways)
    for number, policy in enumerate(ways, start=1):
        print(f"kill {number} of {len(ways)}, step {committed(site.base)}", flush=True)
        policy()
    drain_a_stuck_step(site, chance.choice([signal.SIGTERM, signal.SIGINT]))
    right_to_the_end(site)
    for what, seconds in sorted(site.times.items()):
        middle, most = statistics.median(seconds), max(seconds)
        print(f"{what}: {len(seconds)} times, median {middle:.2f} s, at most {most:.2f} s")
