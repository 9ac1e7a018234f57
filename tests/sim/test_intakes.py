"""Simulated clusters whose instances have intakes keep every promise. A file of its own runs beside the others."""

import pytest

from tests.sim.run import WITH_INTAKES, run_many

SEEDS = 30

pytestmark = pytest.mark.timeout(1200)


def test_no_seed_with_intakes_breaks_a_promise() -> None:
    results = list(run_many(range(SEEDS), WITH_INTAKES, workers=1))
    broken = [
        f"seed {result.seed}: {violation}; replay: {WITH_INTAKES.replay_command} {result.seed}"
        for result in results
        for violation in result.violations[:3]
    ]
    assert not broken, "\n".join(broken)
    assert sum(result.records_acked for result in results) > 50 * SEEDS
