"""What gateways measure of clients with quotas: how much of it they keep, and what they forget."""

import pytest

from kafscale.security.rates import TokenBucket
from services.gateway.quotas import sensors
from services.gateway.quotas.sensors import Sensors, short_name
from tests.unit.gateway.test_quotas import quotas_of


async def test_new_clients_share_a_rate_while_as_many_as_can_be_measured_are_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sensors, "MOST", 3)
    _, clocks, charge = await quotas_of({"producer_byte_rate": 1000.0}, names={"client-id": None})

    def produced(client_id: str, size: int = 10_000) -> int:
        one = charge(client_id)
        one.produced(size)
        return one.settle()

    assert [produced(name) for name in ("a", "b", "c", "d", "e")] == [0, 0, 0, 0, 10_000]
    # None of those that are active was forgotten.
    assert [produced(name, 1) > 0 for name in ("a", "b", "c")] == [True, True, True]
    clocks.now += 10
    produced("a", 5_000)
    clocks.now += 1
    assert [produced("f"), produced("g")] == [0, 0], "those that are idle are forgotten"
    assert produced("a", 6_000) > 0


async def test_long_client_ids_are_measured_one_by_one() -> None:
    _, _, charge = await quotas_of({"producer_byte_rate": 1000.0}, names={"client-id": None})
    throttle_times = []
    for last in "aba":
        one = charge("x" * 100_000 + last)
        one.produced(10_000)
        throttle_times.append(one.settle())
    assert throttle_times == [0, 0, 10_000]
    assert len(short_name("x" * 100_000)) <= len("x" * 64) == len(short_name("x" * 64))


def test_a_token_bucket_that_owes_tokens_is_not_forgotten() -> None:
    known = Sensors(TokenBucket)
    known.get("owing", None, 0).take(111, 1, 0)
    known.get("full", None, 0).take(11, 1, 0)
    known.get("other", None, 11_000).take(1, 1, 11_000)
    assert len(known) == 2
    assert known.get("owing", None, 99_000).throttle_ms(1, 99_000) == 1_000
    known.get("other", None, 111_000).take(1, 1, 111_000)
    assert len(known) == 1
