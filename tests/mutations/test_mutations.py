"""Each mutation of the code makes its test fail.

The test runs in its own process, in which the code is changed before the test runs.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
TIMEOUT = 120.0
"""Seconds. A test that hangs with changed code has not failed."""
FAILED = 64
"""The status of the test's process if the test ran and failed. A crash of the process has another status."""

_OPTIONS = ("-q", "-x", "--assert=plain", "-p", "no:cacheprovider")
_PRELOADED = ("-W", "ignore::hypothesis.errors.HypothesisSideeffectWarning")
"""hypothesis warns, and warnings are errors, if it was imported before pytest started."""

_context = get_context("forkserver")
_context.set_forkserver_preload(["tests.mutations.imported"])


@pytest.fixture(scope="session", autouse=True)
def _path_of_forked_processes() -> Iterator[None]:
    """Make the fork server import the code of this tree, because it ignores this process's sys.path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(ROOT / "spark"))))
        yield


class _Failures:
    """The phases in which tests failed: setup, call or teardown."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.phases.append(report.when)


def _id(mutation: Mutation) -> str:
    return mutation.why.replace(" ", "-")


def _run(mutation: Mutation, output: Path) -> None:
    with output.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        failures = _Failures()
        with mutation.change.applied():
            outcome = pytest.main([*_OPTIONS, *_PRELOADED, mutation.test], plugins=[failures])
        sys.stdout.flush()
    failed = outcome == pytest.ExitCode.TESTS_FAILED and failures.phases == ["call"]
    # Without the exit handlers of the forked process.
    os._exit(FAILED if failed else 1)


def test_mutations_are_unique() -> None:
    assert [mutation for mutation, times in Counter(MUTATIONS).items() if times > 1] == []


@pytest.mark.parametrize(
    "mutation",
    [pytest.param(each, id=_id(each), marks=[pytest.mark.long] if each.slow else []) for each in MUTATIONS],
)
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
    assert process.exitcode == FAILED, printed
    # A replacement that does not fit the code any more does not check the rule.
    assert not any(error in printed for error in ("NameError", "UnboundLocalError", "ImportError")), printed
