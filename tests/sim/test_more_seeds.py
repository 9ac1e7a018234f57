"""More simulated clusters, beside the others in a file of their own, and whether all variants fit the code."""

from collections import Counter

import pytest

from tests.sim.faults import REWRITE_OPERATIONS
from tests.sim.run import ONE_PROCESS, REWRITES, THE_PRODUCT, WITHOUT_INTAKES, Simulated, run_many
from tests.sim.variants import VARIANTS

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize(
    ("what", "seeds"),
    [
        (THE_PRODUCT, range(1000, 1010)),
        (WITHOUT_INTAKES, range(4)),
        (REWRITES, range(12)),
        (ONE_PROCESS, range(2000, 2008)),
    ],
    ids=["with-intakes", "without-intakes", "with-rewrites", "one-process"],
)
def test_no_seed_breaks_a_promise(what: Simulated, seeds: range) -> None:
    results = list(run_many(seeds, what, workers=1))
    broken = [
        f"seed {result.seed}: {violation}; replay: {what.replay_command} {result.seed}"
        for result in results
        for violation in result.violations[:3]
    ]
    assert not broken, "\n".join(broken)
    assert sum(result.records_acked for result in results) > 50 * len(seeds)
    if what.rewrites:
        faults: Counter[str] = sum((result.faults for result in results), Counter())
        assert {kind for kind in REWRITE_OPERATIONS if not faults[kind]} == set()


def test_every_variant_fits_the_code() -> None:
    for variant in VARIANTS.values():
        with variant.applied():
            pass
