"""A seed gives the same faults in the same order, and each kind occurs before any is repeated."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import trio

from tests.chaos import faults
from tests.chaos.faults import FAULTS, Scene, children_of, storm
from tests.chaos.node import Node
from tests.chaos.report import shortened, table
from tests.chaos.run import Report
from tests.chaos.world import World
from tests.support.chaos.history import ProducerSums, Verdict


async def _names(seed: int, count: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first faults of a storm in which faults take no time."""
    names: list[str] = []
    monkeypatch.setattr(faults, "_CALM_SECONDS", (0, 0))
    with trio.CancelScope() as scope:

        async def nothing(scene: Scene) -> None:
            await trio.lowlevel.checkpoint()

        def begin(name: str) -> Callable[[str], None]:
            names.append(name)
            if len(names) >= count:
                scope.cancel()
            return print

        for name in FAULTS:
            monkeypatch.setitem(FAULTS, name, nothing)
        await storm(cast(World, None), seed, begin)
    return names[:count]


async def test_a_seed_gives_the_same_faults_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await _names(7, 60, monkeypatch)
    assert await _names(7, 60, monkeypatch) == first
    assert await _names(8, 60, monkeypatch) != first


async def test_every_fault_occurs_before_any_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    names = await _names(7, 2 * len(FAULTS), monkeypatch)
    assert sorted(names[: len(FAULTS)]) == sorted(names[len(FAULTS) :]) == sorted(FAULTS)


def test_a_node_can_be_killed_paused_and_started_again(tmp_path: Path) -> None:
    program = "import time; print('up', flush=True); time.sleep(600)"
    node = Node("node", [sys.executable, "-c", program], {"KAFSCALE_X": "y"}, tmp_path)
    try:
        assert (node.wanted, node.running, node.status, node.stop()) == (False, False, None, None)
        for times in itertools.count(1):
            node.start()
            node.start()
            while node.log.read_text().count("up") < times:
                assert node.running
            if times == 3:
                break
            node.pause()
            node.kill() if times == 1 else node.stop()
            assert (node.wanted, node.running, node.status) == (False, False, -9 if times == 1 else -15)
            node.resume()
        assert node.wanted
    finally:
        node.kill()


def test_the_processes_that_a_process_has_started_are_found() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children_of(os.getpid())


def test_the_table_contains_everything_that_was_counted() -> None:
    report = Report(seed=5, minutes=1.5)
    report.faults.update(["kill storage", "kill storage", "pause etcd"])
    report.ended["storage-1, status 1"] += 1
    report.rewrites.update(merge=3, compaction=14)
    report.abandoned = 2
    report.longest_stall = 1.25
    report.verdict = Verdict([], {"java": ProducerSums(12, 11, {"TIMED_OUT": 1}, 3.25)}, {"reader": 11}, 11, 4.5)
    words = table(report).split()
    for line in (
        "minutes of faults 1.5, seed 5",
        "kill storage 2",
        "unexpected exits 1 storage-1, status 1: 1",
        "longest stall 1.2 s of the proxies; leases last 3 s",
        "rewrites compaction: 14, merge: 3, abandoned: 2",
        "java 12 11 1 3.2 s TIMED_OUT: 1",
        "any ack 4.5 s",
        "checked 11 acked records against a log of 11",
        "verdict no acked record lost",
    ):
        assert line in " ".join(words)
    report.verdict.complaints.append("lost: 0: one")
    assert table(report).endswith("verdict                1 complaints")


def test_complaints_are_shortened_by_kind() -> None:
    complaints = [*(f"lost: 0: {number}" for number in range(7)), "no acks", "doubled: 1: x"]
    assert shortened(complaints) == [*complaints[:5], "lost: 2 more", "no acks", "doubled: 1: x"]


@pytest.mark.parametrize(("program", "option"), [("tests.chaos", "--minutes"), ("tests.chaos.upgrades", "--baseline")])
def test_the_commands_have_help_texts(program: str, option: str) -> None:
    done = subprocess.run([sys.executable, "-m", program, "--help"], capture_output=True, text=True, check=True)
    assert option in done.stdout
