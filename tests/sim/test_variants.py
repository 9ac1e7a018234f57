"""The simulation notices what it is for: every deliberately broken variant, in few seeds; the unbroken product passes
the very seeds, with the very faults, that give a variant away."""

import pytest

from tests.sim.run import run_seed, until_found
from tests.sim.variants import VARIANTS, Change
from tests.sim.world import simulate

MOST_SEEDS = 60

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_variant_is_found(name: str) -> None:
    tried, found = until_found(name, MOST_SEEDS)
    assert found is not None, f"{tried} seeds did not find it: {VARIANTS[name].why}"
    unbroken = simulate(found.seed, VARIANTS[name].boost, troubled_seconds=VARIANTS[name].troubled_seconds)
    assert not unbroken.violations


def test_a_variant_is_found_again_by_its_seed() -> None:
    _, found = until_found("ack-before-commit", MOST_SEEDS)
    assert found is not None
    again = run_seed(found.seed, "ack-before-commit")
    assert (again.digest, again.violations) == (found.digest, found.violations)


def test_a_change_that_fits_no_line_is_refused() -> None:
    change = Change("services.storage.committer", "Committer._commit", "no such line", "")
    with pytest.raises(ValueError, match="0 times"), change.applied():
        pass


def test_a_variant_leaves_no_trace() -> None:
    with VARIANTS["ack-before-commit"].applied():
        pass
    assert not simulate(0, VARIANTS["ack-before-commit"].boost).violations
