"""`kafscale drain`: output and exit status."""

import json
from collections.abc import Iterator

import pytest

from kafscale_tools.cli.exits import Exit
from tests.support.gateway.admin_server import AdminServer, admin_server
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import Harness


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as server:
        yield server


async def _drainable(harness: Harness) -> None:
    """Create a topic of two partitions of the only instance, and add another instance."""
    topic = await harness.topic("t", 2)
    for partition in range(2):
        await harness.cluster.own(topic, "storage", partition=partition)
    other = FakeStorage()
    await harness.cluster.add("other", other)
    # The gateway logs this instance, and the line must not mix with a command's output.
    await other.wait_until(lambda: bool(other.opened))


async def _taken_over(harness: Harness) -> None:
    (topic,) = harness.catalog.view.by_name.values()
    for partition in range(2):
        await harness.cluster.own(topic, "other", partition=partition, epoch=2)


def test_an_instance_is_drained_and_the_drain_is_cancelled(server: AdminServer) -> None:
    last = server.run("drain", "storage:9095")
    assert (last.exit_code, "is the only one" in last.output) == (Exit.REFUSED, True)
    server.there(_drainable, server.harness)
    begun = server.run("drain", "storage:9095", "--no-wait")
    assert (begun.output, begun.exit_code) == (
        "storage storage:9095 is being drained: 2 of 2 partitions remaining\n",
        0,
    )
    assert "ready, draining owns 2 partitions" in " ".join(server.run("cluster").output.split())
    late = server.run("drain", "storage:9095", "--timeout", "1")
    assert late.exit_code == Exit.UNAVAILABLE
    assert "Error: 2 of 2 partitions remaining after 1 s (--timeout); the drain may continue" in late.output
    server.there(_taken_over, server.harness)
    done = json.loads(server.run("drain", "storage:9095", "-o", "json").output)
    assert (done["address"], done["remaining"], done["done"]) == ("storage:9095", 0, True)
    assert "ready, drained owns 0 partitions" in " ".join(server.run("cluster").output.split())
    cancelled = server.run("drain", "storage:9095", "--cancel")
    assert (cancelled.output, cancelled.exit_code) == ("storage storage:9095 is no longer drained\n", 0)
    assert server.run("drain", "storage:9095", "--cancel").exit_code == Exit.REFUSED
    assert server.run("drain", "nowhere:1").exit_code == Exit.NOT_FOUND
