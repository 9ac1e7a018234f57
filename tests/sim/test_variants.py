"""The simulation finds every deliberately broken variant, in few seeds or, if it is rare, in many.

`make test-long` also runs the correct product with the seeds and faults that find the variants. The simulations run in
another process, because other threads in this one, such as those of Kafka clients, draw from the same random numbers,
and seeds would not replay.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import pytest

from tests.sim.result import Result
from tests.sim.run import Simulated, run_seed
from tests.sim.variants import VARIANTS
from tests.support.change import Change

MOST_SEEDS, MOST_SEEDS_OF_A_RARE_ONE = 60, 600
T = TypeVar("T")

pytestmark = pytest.mark.timeout(3600)


class _Apart:
    """Runs calls in another process, one by one."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def __call__(self, call: Callable[..., T], *arguments: object) -> T:
        return self._pool.submit(call, *arguments).result()

    def until_found(self, name: str, most: int) -> Result:
        """Run seeds until one detects a variant."""
        first = VARIANTS[name].first_seed
        for seed in range(first, first + most):
            result = self(run_seed, seed, Simulated(name))
            if result.violations:
                return result
        pytest.fail(f"{most} seeds did not find this variant: {VARIANTS[name].why}")


@pytest.fixture(scope="module")
def apart() -> Iterator[_Apart]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield _Apart(pool)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if variant.rare or variant.rewrites else name
        for name, variant in VARIANTS.items()
    ],
)
def test_a_broken_variant_is_found(name: str, apart: _Apart, request: pytest.FixtureRequest) -> None:
    found = apart.until_found(name, MOST_SEEDS_OF_A_RARE_ONE if VARIANTS[name].rare else MOST_SEEDS)
    if request.config.getoption("--run-long"):
        assert not apart(run_seed, found.seed, Simulated(faults_of=name)).violations


def _outcome(name: str) -> int:
    with VARIANTS[name].applied():
        return int(pytest.main(["-p", "no:cacheprovider", "-W", "ignore", VARIANTS[name].rare]))


@pytest.mark.parametrize("name", [name for name, variant in VARIANTS.items() if variant.rare])
def test_the_test_named_by_a_rare_variant_always_fails_with_it(name: str, apart: _Apart) -> None:
    assert apart(_outcome, name) == pytest.ExitCode.TESTS_FAILED


def test_a_variant_is_found_again_with_its_seed_and_undone_completely(apart: _Apart) -> None:
    found = apart.until_found("ack-before-commit", MOST_SEEDS)
    again = apart(run_seed, found.seed, Simulated("ack-before-commit"))
    assert (again.digest, again.violations) == (found.digest, found.violations)
    assert not apart(run_seed, found.seed, Simulated(faults_of="ack-before-commit")).violations


def test_a_change_that_matches_no_line_is_refused() -> None:
    change = Change("services.storage.writing.committer", "Committer._commit", "no such line", "")
    with pytest.raises(ValueError, match="0 times"), change.applied():
        pass
