"""A gateway's metrics of requests, and metrics and health of coordinators."""

from trio.testing import MockClock

from kafscale.errors import Unavailable
from kafscale.process.operations import Operations
from services.gateway.monitoring import show
from tests.support.gateway import group_asking as asking
from tests.support.gateway.asking import fetch_body
from tests.support.gateway.harness import Harness, running_gateway
from tests.unit.gateway.test_coordinators import groups_of, two_coordinators
from tests.unit.gateway.test_fetch import waiting
from tests.unit.gateway.two_owners import settled


def _check(operations: Operations) -> tuple[object, object]:
    report = operations.health.report()
    check = report.checks["coordinators"]
    assert "not_ready" not in check
    return check["state"], check.get("reason")


def _metrics(operations: Operations, prefix: str = "kafscale_gateway_coordinator") -> dict[str, float]:
    lines = operations.metrics.text().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith(prefix))
    return {name: float(value) for name, value in values.items()}


async def _remove(harness: Harness, run_id: str) -> None:
    await harness.cluster.remove(run_id)
    while run_id in {link.run_id for link in harness.gateway.coordinators.links()}:  # type: ignore[union-attr]
        await harness.parts.coordinators.wait_change(harness.parts.coordinators.view)
        await settled()


async def test_metrics_and_health_cover_coordinators_and_their_shards() -> None:
    async with running_gateway(cluster=await two_coordinators()) as harness:
        operations, client = Operations(), await harness.connect()
        show(harness.gateway, harness.parts.counters, operations)
        coordinators = harness.cluster.coordinators
        shards = {name: float(len(each.shards)) for name, each in coordinators.items()}
        assert sum(shards.values()) == 64
        assert _check(operations) == ("healthy", None)
        assert _metrics(operations) == {
            'kafscale_gateway_coordinator_shards{coordinator="a:9096"}': shards["a"],
            'kafscale_gateway_coordinator_shards{coordinator="b:9096"}': shards["b"],
            "kafscale_gateway_coordinators_draining": 0,
            "kafscale_gateway_coordinators_gone_total": 0,
            "kafscale_gateway_coordinators_silent": 0,
        }
        [group] = groups_of("b", 1)
        coordinators["b"].fails = Unavailable("a test")
        await asking.heartbeat(client, 3, 1, "m", group=group)
        assert _check(operations) == ("degraded", "1 of 2 coordinators did not answer the last call")
        assert _metrics(operations)["kafscale_gateway_coordinators_silent"] == 1
        coordinators["b"].fails = None
        await asking.commit(client, {"t": {0: (1, "")}}, group=group)
        await asking.fetch(client, 8, {group: None})
        assert _check(operations) == ("healthy", None)
        await _remove(harness, "b")
        metrics = _metrics(operations)
        assert metrics['kafscale_gateway_coordinator_shards{coordinator="a:9096"}'] == 64
        assert 'kafscale_gateway_coordinator_shards{coordinator="b:9096"}' not in metrics
        assert metrics["kafscale_gateway_coordinators_gone_total"] == 1
        await _remove(harness, "a")
        assert _check(operations) == (
            "unavailable",
            "no coordinator is registered, so consumer groups make no progress",
        )


async def test_requests_are_counted_by_version_duration_and_error(mock_clock: MockClock) -> None:
    async with running_gateway() as harness:
        operations, client = Operations(), await harness.connect()
        show(harness.gateway, harness.parts.counters, operations)
        await client.ask(18, 0)
        await client.call(18, 999, b"")
        await client.call(18, 1000, b"")
        assert _metrics(operations, "kafscale_gateway_requests_total") == {
            'kafscale_gateway_requests_total{api="ApiVersions",version="0"}': 1,
            'kafscale_gateway_requests_total{api="ApiVersions",version="other"}': 2,
        }
        assert _metrics(operations, "kafscale_gateway_errors_total") == {
            'kafscale_gateway_errors_total{api="ApiVersions",error="UNSUPPORTED_VERSION"}': 2
        }
        await harness.topic("t")
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=7_000))
        await waiting(harness)
        mock_clock.jump(7)
        await client.receive()
        metrics = _metrics(operations, "kafscale_gateway_request_seconds")
        assert metrics['kafscale_gateway_request_seconds_count{api="ApiVersions"}'] == 3
        assert metrics['kafscale_gateway_request_seconds_sum{api="ApiVersions"}'] == 0
        assert metrics['kafscale_gateway_request_seconds_bucket{api="Fetch",le="5"}'] == 0
        assert metrics['kafscale_gateway_request_seconds_bucket{api="Fetch",le="10"}'] == 1
