"""Half a minute of faults on real processes. `make chaos` runs longer and with other seeds."""

from pathlib import Path

import pytest

from tests.chaos.report import shortened, table
from tests.chaos.run import run

SEED = 4


@pytest.mark.timeout(3600)
async def test_no_acked_record_is_lost_in_half_a_minute_of_faults(tmp_path: Path) -> None:
    report = await run(tmp_path, minutes=0.5, seed=SEED, say=print)
    print(table(report))
    if report.complaints:
        pytest.fail("\n".join(shortened(report.complaints)), pytrace=False)
    assert sum(report.faults.values()) > 0
    assert all(sums.acked > 0 for sums in report.verdict.producers.values())
