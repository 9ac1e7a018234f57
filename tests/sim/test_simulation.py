"""Simulated clusters with faults keep every promise, and a seed replays exactly."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.faults import KINDS
from tests.sim.group_nemesis import ALONE_EVENTS, GROUP_KINDS
from tests.sim.result import Result
from tests.sim.run import GROUPS_ALONE, THE_PRODUCT, run_many
from tests.sim.world import GROUPS_EVERY

SEEDS = range(16, 44)
SEEDS_OF_GROUPS_ALONE = 16

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return list(run_many(SEEDS, workers=1))


def test_no_seed_breaks_a_promise(results: list[Result]) -> None:
    broken = [
        f"seed {result.seed}: {violation}; replay: {THE_PRODUCT.replay_command} {result.seed}"
        for result in results
        for violation in result.violations[:3]
    ]
    assert not broken, "\n".join(broken)
    assert [result.seed for result in results] == list(SEEDS)


def test_every_kind_of_fault_occurs_and_records_are_written(results: list[Result]) -> None:
    faults: Counter[str] = sum((result.faults for result in results), Counter())
    # No log is rewritten in these seeds.
    assert {kind: faults[kind] for kind in KINDS if not faults[kind] and not kind.startswith("rewrite-")} == {}
    assert sum(result.records_acked for result in results) > 50 * len(SEEDS)
    assert sum(result.records_read for result in results) > 50 * len(SEEDS)
    assert sum(result.group_commits for result in results) > 50 * len(SEEDS) / GROUPS_EVERY
    assert sum(result.group_assignments for result in results) > 2 * len(SEEDS) / GROUPS_EVERY


def test_groups_simulated_alone_keep_their_promises() -> None:
    results = list(run_many(range(SEEDS_OF_GROUPS_ALONE), GROUPS_ALONE, workers=1))
    broken = [
        f"seed {result.seed}: {violation}; replay: {GROUPS_ALONE.replay_command} {result.seed}"
        for result in results
        for violation in result.violations[:3]
    ]
    assert not broken, "\n".join(broken)
    faults: Counter[str] = sum((result.faults for result in results), Counter())
    # A shard with unstored changes is seldom released; the variant for that makes it happen more often.
    assert {kind for kind in (*GROUP_KINDS, *ALONE_EVENTS) if not faults[kind]} <= {"coordinator-unproven-giving-back"}
    assert sum(result.group_commits for result in results) > 200 * SEEDS_OF_GROUPS_ALONE


def test_a_seed_gives_the_same_trace_in_another_process(results: list[Result]) -> None:
    """The processes have different hash seeds, so that the order of sets differs."""
    command = [sys.executable, "-c", "from tests.sim.run import run_seed; print(run_seed(21).digest)"]
    environment = os.environ | {"PYTHONHASHSEED": "4711"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == results[SEEDS.index(21)].digest
    assert len({result.digest for result in results}) == len(results)
