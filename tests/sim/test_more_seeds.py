"""More simulated clusters, with intakes and without. A file of its own runs beside the others."""

import pytest

from tests.sim.run import THE_PRODUCT, WITHOUT_INTAKES, Simulated, run_many

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize(
    ("what", "seeds"),
    [(THE_PRODUCT, range(1000, 1040)), (WITHOUT_INTAKES, range(40))],
    ids=["with-intakes", "without-intakes"],
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
