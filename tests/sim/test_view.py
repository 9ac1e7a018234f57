"""The records that the view lets retention by time delete, if clients know little or nothing of them."""

from dataclasses import dataclass

import pytest

from tests.sim.faults import Faults
from tests.sim.trace import Trace
from tests.sim.view import SMALL_SKEW_SECONDS, Partition, Retention, View
from tests.support.checker import UNANSWERED, Checker

_RETENTION_MS = 4000
_DUE_MS = _RETENTION_MS - int(SMALL_SKEW_SECONDS * 1000)


@dataclass
class _Clock:
    ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def _sent(clock: _Clock) -> tuple[View, Partition]:
    """Return a view, and a partition to which a record was sent."""
    view = View(checker=Checker(), faults=Faults(0, {}), trace=Trace(), gateways={}, now_ms=clock.now_ms)
    partition = Partition("topic", b"id", 0, Retention(ms=_RETENTION_MS))
    view.add(partition)
    view.stamp(partition, b"record")
    view.sent("producer", partition, b"record", UNANSWERED)
    return view, partition


@pytest.mark.parametrize(("age_ms", "complaints"), [(_DUE_MS, []), (_DUE_MS - 1, ["start-too-high"])])
async def test_retention_may_delete_old_records_that_no_client_knows(age_ms: int, complaints: list[str]) -> None:
    clock = _Clock()
    view, partition = _sent(clock)
    clock.ms += age_ms
    view.ends(partition, start=1, end=1, asked=0.0)
    assert [violation.kind for violation in view.checker.violations] == complaints


@pytest.mark.parametrize(("age_ms", "complaints"), [(_DUE_MS, []), (_DUE_MS - 1, ["left-out"])])
async def test_an_answer_may_omit_old_records_before_a_client_has_seen_the_log_start(
    age_ms: int, complaints: list[str]
) -> None:
    clock = _Clock()
    view, partition = _sent(clock)
    view.acked(partition, b"record", 0)
    since = clock.ms
    clock.ms += age_ms
    view.first_at(partition, "a plan", since, [0], 1, none=1)
    assert [violation.kind for violation in view.checker.violations] == complaints
