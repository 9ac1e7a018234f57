"""Checks and readiness, and their report in /readyz, /metrics and gRPC's health service."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpcore
import pytest
import structlog
import trio
from trio.testing import MockClock

from kafscale.config.network import Address, HttpSettings
from kafscale.config.settings import load
from kafscale.errors import ConfigError, Unavailable
from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership
from kafscale.metadata.memory import MemoryMetadataStore, no_answer
from kafscale.objects.availability import StoreHealth, Thresholds
from kafscale.objects.memory import MemoryObjectStore
from kafscale.objects.metrics import OperationCounters
from kafscale.process.health import Health, HealthSettings
from kafscale.process.metrics import Metrics
from kafscale.process.operations import Operations
from kafscale.telemetry import Family, Finding, Histogram, State, counter, gauge
from kafscale.v1.metadata_pb2 import Member

HOST = "127.0.0.1"


class Switch:
    """A check with a result that the test sets."""

    def __init__(self) -> None:
        self.state = State.HEALTHY

    def __call__(self) -> Finding:
        return Finding(self.state, f"told to be {self.state.label}")


async def test_a_check_affects_readiness_from_its_configured_state_on(autojump_clock: MockClock) -> None:
    health, strict, lenient, informing = Health(), Switch(), Switch(), Switch()
    health.add("strict", strict, unready_from=State.DEGRADED)
    health.add("lenient", lenient, unready_from=State.UNAVAILABLE)
    health.add("informing", informing)
    health.start()
    assert health.ready
    lenient.state = State.DEGRADED
    informing.state = State.UNAVAILABLE
    report = health.report()
    assert (report.ready, report.state) == (True, State.UNAVAILABLE)
    strict.state = State.DEGRADED
    assert not health.report().ready
    strict.state, lenient.state = State.HEALTHY, State.UNAVAILABLE
    await trio.sleep(10)
    report = health.report()
    await trio.sleep(5)
    assert health.report().checks["lenient"] == {
        "state": "unavailable",
        "since_seconds": 5,
        "reason": "told to be unavailable",
        "not_ready": True,
    }


async def test_each_change_is_logged_and_reported_once(autojump_clock: MockClock) -> None:
    health, switch = Health(), Switch()
    reported: list[bool] = []
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(health.run)
            health.add("s3", switch, unready_from=State.UNAVAILABLE)
            health.on_ready(reported.append)
            await trio.sleep(5)
            health.start()
            await trio.sleep(5)
            switch.state = State.DEGRADED
            await trio.sleep(100)
            switch.state = State.UNAVAILABLE
            await trio.sleep(100)
            switch.state = State.HEALTHY
            await trio.sleep(100)
            health.stop()
            health.stop()
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
    changes = [(log["check"], log["state"], log["log_level"]) for log in logs if log["event"] == "health check changed"]
    assert changes == [
        ("s3", "degraded", "warning"),
        ("s3", "unavailable", "warning"),
        ("s3", "healthy", "info"),
    ]
    assert reported == [False, True, False, True, False]


async def test_changes_while_the_process_stops_are_not_logged(autojump_clock: MockClock) -> None:
    health, switch = Health(), Switch()
    health.add("lease", switch, unready_from=State.UNAVAILABLE)
    health.start()
    with structlog.testing.capture_logs() as logs:
        health.stop()
        switch.state = State.UNAVAILABLE
        health.evaluate()
    assert [log["event"] for log in logs] == ["not ready"]
    assert health.report().checks["lease"]["state"] == "unavailable"


async def test_the_older_of_two_processes_with_one_address_is_not_ready_and_logs_that() -> None:
    store = MemoryMetadataStore()
    members = Members(store, "ns", "storage")

    async def join(run_id: str, address: str) -> Membership:
        member = Member(format=1, run_id=run_id, service="storage", address=address)
        membership = Membership(store, namespace="ns", member=member, ttl_seconds=10)
        await membership.join()
        view = members.view
        while run_id not in view.by_run_id:
            view = await members.wait_change(view)
        return membership

    def watched(membership: Membership) -> Operations:
        operations = Operations()
        operations.watch_address(lambda: membership, members, unready_from=State.UNAVAILABLE)
        operations.health.start()
        return operations

    async with trio.open_nursery() as nursery:
        await nursery.start(members.run)
        first = await join("first", "127.0.0.1:9095")
        other = watched(await join("other", "10.0.0.2:9095"))
        alone = [watched(await join(run_id, "")) for run_id in ("in-process", "in-another")]
        operations = watched(first)
        assert operations.health.ready
        second = await join("second", "127.0.0.1:9095")
        with structlog.testing.capture_logs() as logs:
            operations.health.evaluate()
        assert not operations.health.ready
        (reported,) = (log for log in logs if log["event"] == "health check changed")
        assert (reported["log_level"], reported["check"], reported["state"]) == ("warning", "address", "unavailable")
        assert "127.0.0.1:9095" in reported["reason"]
        assert "second" in reported["reason"]
        for well in (watched(second), other, *alone):
            well.health.evaluate()
            assert well.health.ready
        # Without a proven lease the newer process may be this one's successor.
        await first.leave()
        operations.health.evaluate()
        assert operations.health.ready
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def operating() -> AsyncIterator[tuple[Operations, trio.Event, "Asker"]]:
    stopping = trio.Event()
    with structlog.testing.capture_logs() as logs:
        async with Operations.open(HttpSettings(http_addr=Address(HOST, 0)), "storage", stopping) as operations:
            port = next(log["port"] for log in logs if log["event"] == "HTTP server started")
            async with httpcore.AsyncConnectionPool() as pool:
                yield operations, stopping, Asker(pool, port)


class Asker:
    def __init__(self, pool: httpcore.AsyncConnectionPool, port: int) -> None:
        self._pool = pool
        self._port = port

    async def __call__(self, path: str) -> tuple[int, str]:
        found = await self._pool.request("GET", f"http://{HOST}:{self._port}{path}")
        return found.status, found.content.decode()


async def test_readyz_follows_the_life_of_the_process_and_its_stores() -> None:
    async with operating() as (operations, stopping, ask):
        assert (await ask("/healthz"))[0] == 200
        status, body = await ask("/readyz")
        assert (status, json.loads(body)["checks"]["process"]["reason"]) == (503, "starting")
        objects, bare = MemoryObjectStore(), MemoryMetadataStore()
        operations.observe_objects(objects, StoreHealth(HealthSettings().thresholds()), OperationCounters())
        metadata = operations.observed(bare)
        operations.health.start()
        assert (await ask("/readyz"))[0] == 200
        bare.faults.append(no_answer("get"))
        with pytest.raises(Unavailable):
            await metadata.get("x")
        status, body = await ask("/readyz")
        assert (status, json.loads(body)["checks"]["etcd"]["state"]) == (200, "degraded")
        await metadata.get("x")
        objects.clock_skew_seconds = 7.0
        status, body = await ask("/readyz")
        shown = json.loads(body)
        assert (status, shown["ready"], shown["state"]) == (503, False, "unavailable")
        assert "clock" in shown["checks"]["clock"]["reason"]
        objects.clock_skew_seconds = 0.0
        assert json.loads((await ask("/readyz"))[1])["checks"]["etcd"]["state"] == "healthy"
        stopping.set()
        await trio.testing.wait_all_tasks_blocked()
        status, body = await ask("/readyz")
        assert (status, json.loads(body)["checks"]["process"]["reason"]) == (503, "stopping")
        assert (await ask("/healthz"))[0] == 200


async def test_metrics_contain_plain_numbers_of_this_process_only() -> None:
    async with operating() as (operations, _, ask), operating() as (_, _, ask_other):
        number, spread = {"n": 3}, Histogram((0.1, 1.0))
        operations.metrics.add(
            [
                counter("kafscale_test_total", "A counter.", lambda: number["n"]),
                gauge("kafscale_test_now", "A gauge.", lambda: 1.5),
                Family("kafscale_test_seconds", "histogram", "A histogram.", lambda: {("get",): spread}, ("kind",)),
            ]
        )
        for seconds in (0.05, 0.1, 0.5, 7.0):
            spread.observe(seconds)
        number["n"] += 1
        status, text = await ask("/metrics")
        assert status == 200
        for line in (
            "kafscale_test_total 4.0",
            "kafscale_test_now 1.5",
            'kafscale_test_seconds_bucket{kind="get",le="0.1"} 2.0',
            'kafscale_test_seconds_bucket{kind="get",le="1"} 3.0',
            'kafscale_test_seconds_bucket{kind="get",le="+Inf"} 4.0',
            'kafscale_test_seconds_count{kind="get"} 4.0',
            'kafscale_test_seconds_sum{kind="get"} 7.65',
            "kafscale_ready 0.0",
        ):
            assert line in text.splitlines()
        assert "process_resident_memory_bytes" in text
        assert "python_gc_objects_collected_total" in text
        assert "kafscale_test" not in (await ask_other("/metrics"))[1]


def test_a_metric_has_a_unique_name_and_a_help_text() -> None:
    metrics = Metrics()
    metrics.add([counter("kafscale_a_total", "", lambda: 0)])
    for family in (
        counter("kafscale_a_total", "", lambda: 0),
        counter("kafscale_b", "", lambda: 0),
        gauge("c_total", "", lambda: 0),
    ):
        with pytest.raises(ValueError, match=family.name):
            metrics.add([family])


def test_thresholds_come_from_settings() -> None:
    environ = {
        "KAFSCALE_S3_HEALTH_WINDOW_SEC": "30",
        "KAFSCALE_S3_LATENCY_WARN_MS": "200",
        "KAFSCALE_S3_LATENCY_CRIT_MS": "900",
        "KAFSCALE_S3_ERROR_RATE_WARN": "0.1",
        "KAFSCALE_S3_ERROR_RATE_CRIT": "0.9",
    }
    assert load(HealthSettings, environ).thresholds() == Thresholds(
        window=30, latency_warn=0.2, latency_crit=0.9, error_rate_warn=0.1, error_rate_crit=0.9
    )
    assert load(HealthSettings, {}).thresholds() == Thresholds()
    for name, value in (("KAFSCALE_S3_ERROR_RATE_WARN", "1.5"), ("KAFSCALE_S3_ERROR_RATE_CRIT", "x")):
        with pytest.raises(ConfigError, match=name):
            load(HealthSettings, {name: value})
    with pytest.raises(ConfigError, match="KAFSCALE_S3_LATENCY_CRIT_MS"):
        load(HealthSettings, {"KAFSCALE_S3_LATENCY_WARN_MS": "5000"})
    with pytest.raises(ConfigError, match="KAFSCALE_S3_ERROR_RATE_CRIT"):
        load(HealthSettings, {"KAFSCALE_S3_ERROR_RATE_WARN": "0.7"})
