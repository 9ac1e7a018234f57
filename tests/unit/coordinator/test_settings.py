"""Settings that test suites change apply to groups."""

import pytest

from kafscale.config.settings import load
from services.coordinator.settings import CoordinatorSettings
from tests.support.coordinator.harness import E, World


@pytest.mark.parametrize("delay_ms", [0, 3000])
def test_minimum_session_timeout_and_initial_delay_are_configurable(delay_ms: int) -> None:
    environ = {
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS": "3000",
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": str(delay_ms),
    }
    world = World(load(CoordinatorSettings, environ).limits())
    short = world.join(session_timeout_ms=2999)
    assert world.joined(short).error == E.INVALID_SESSION_TIMEOUT
    ticket = world.join(session_timeout_ms=3000)
    if delay_ms:
        world.advance(delay_ms - 1)
        assert ticket not in world.replies
        world.advance(1)
    else:
        world.advance(0)
    assert world.joined(ticket).generation == 1
