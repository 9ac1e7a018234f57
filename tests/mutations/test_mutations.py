"""The tests of the product's rules fail on wrong code.

Each runs in a process of its own, in which the code is changed before the test is imported.
"""

import os
import sys
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
TIMEOUT = 120.0
"""Seconds; a test that hangs on wrong code has not failed."""

_context = get_context("forkserver")
_context.set_forkserver_preload(["tests.mutations.imported"])


def _id(mutation: Mutation) -> str:
    return mutation.why.replace(" ", "-")


def _run(mutation: Mutation, output: Path) -> None:
    with output.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        with mutation.change.applied():
            outcome = pytest.main(["-q", "-x", "-p", "no:cacheprovider", mutation.test])
        sys.stdout.flush()
    # Without the exit handlers of what was forked along.
    os._exit(int(outcome))


def test_each_mutation_is_there_once() -> None:
    assert [mutation for mutation, times in Counter(MUTATIONS).items() if times > 1] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=_id)
def test_a_mutation_makes_its_test_fail(mutation: Mutation, tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    process = _context.Process(target=_run, args=(mutation, output))
    process.start()
    process.join(TIMEOUT)
    if process.exitcode is None:
        process.kill()
        process.join()
        pytest.fail(f"the test has not ended in {TIMEOUT:g} s:\n{output.read_text()}")
    said = output.read_text()
    assert process.exitcode == pytest.ExitCode.TESTS_FAILED, said
    # A test that fails for a name that is not there, or does not get to run, shows nothing of its rule.
    assert "NameError" not in said, said
    assert " error" not in said.splitlines()[-1], said
