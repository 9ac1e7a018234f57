"""The health check and metrics of a coordinator."""

import trio

from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.process.operations import Operations
from services.coordinator.monitoring import show
from tests.support.coordinator.shell import LEASE_SECONDS, Instance, coordinators


def _status(instance: Instance) -> tuple[object, float, float]:
    """Return the state of the check, and the numbers of owned and awaited shards."""
    operations = Operations()
    show(instance.service, instance.deps.counters, operations)
    lines = operations.metrics.text().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    owned, awaited = (float(values[f"kafscale_coordinator_shards_{name}"]) for name in ("owned", "awaited"))
    return operations.health.report().checks["groups"]["state"], owned, awaited


async def test_health_degrades_when_another_coordinator_does_not_release_shards(autojump_clock: object) -> None:
    async with coordinators(MemoryMetadataStore(), "a:1") as made:
        await made.serving()
        (first,) = made.instances
        assert _status(first) == ("healthy", 64, 0)
        first.gate.shut()
        second = await made.start("b:1")
        await trio.sleep(2)
        state, owned, awaited = _status(second)
        assert (state, owned) == ("healthy", 0)
        assert awaited > 0
        await trio.sleep(4)
        assert _status(second) == ("degraded", 0, awaited)
        await trio.sleep(2 * LEASE_SECONDS)
        assert _status(second) == ("healthy", 64, 0)
