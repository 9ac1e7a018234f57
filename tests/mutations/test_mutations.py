"""Each mutation of the code makes its test fail.

The test runs in its own process, in which the code is changed before the test is imported.
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
    # Without the exit handlers of the forked process.
    os._exit(int(outcome))


def test_mutations_are_unique() -> None:
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
    printed = output.read_text()
    assert process.exitcode == pytest.ExitCode.TESTS_FAILED, printed
    # A test with an undefined name, or one that does not run, does not check its rule.
    assert "NameError" not in printed, printed
    assert " error" not in printed.splitlines()[-1], printed
