"""The simulation finds every deliberately broken variant, in few seeds or, if it is rare, in many.

The correct product passes the same seeds with the same faults. Each simulation runs in its own process, because other
threads in this one, such as those of Kafka clients, draw from the same random numbers, and seeds would not replay.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import pytest

from tests.sim.result import Result
from tests.sim.run import Simulated, run_seed, until_found
from tests.sim.variants import VARIANTS
from tests.support.change import Change

MOST_SEEDS, MOST_SEEDS_OF_A_RARE_ONE = 60, 600
T = TypeVar("T")

pytestmark = pytest.mark.timeout(3600)


def _apart(call: Callable[..., T], *arguments: object) -> T:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def _unbroken(seed: int, name: str) -> Result:
    return VARIANTS[name].simulate(seed)


def _after_the_variant(seed: int, name: str) -> Result:
    with VARIANTS[name].applied():
        pass
    return _unbroken(seed, name)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if variant.rare or variant.rewrites else name
        for name, variant in VARIANTS.items()
    ],
)
def test_a_broken_variant_is_found(name: str) -> None:
    most = MOST_SEEDS_OF_A_RARE_ONE if VARIANTS[name].rare else MOST_SEEDS
    tried, found = until_found(name, most, workers=1)
    assert found is not None, f"{tried} seeds did not find this variant: {VARIANTS[name].why}"
    assert not _apart(_unbroken, found.seed, name).violations


def _outcome(name: str) -> int:
    with VARIANTS[name].applied():
        return int(pytest.main(["-p", "no:cacheprovider", "-W", "ignore", VARIANTS[name].rare]))


@pytest.mark.parametrize("name", [name for name, variant in VARIANTS.items() if variant.rare])
def test_the_test_named_by_a_rare_variant_always_fails_with_it(name: str) -> None:
    assert _apart(_outcome, name) == pytest.ExitCode.TESTS_FAILED


def test_a_variant_is_found_again_with_its_seed() -> None:
    _, found = until_found("ack-before-commit", MOST_SEEDS, workers=1)
    assert found is not None
    again = _apart(run_seed, found.seed, Simulated("ack-before-commit"))
    assert (again.digest, again.violations) == (found.digest, found.violations)


def test_a_change_that_matches_no_line_is_refused() -> None:
    change = Change("services.storage.writing.committer", "Committer._commit", "no such line", "")
    with pytest.raises(ValueError, match="0 times"), change.applied():
        pass


def test_a_variant_is_undone_completely() -> None:
    assert not _apart(_after_the_variant, 0, "ack-before-commit").violations
