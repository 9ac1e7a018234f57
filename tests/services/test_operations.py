"""Metrics and health of the four processes: in normal operation, while S3 throttles, and while etcd is silent."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpcore
import pytest
import trio
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kafscale.objects.metrics import OUTCOMES, WITH_BODIES
from kafscale.process.metrics import Described
from kafscale_tools.documents import generate as docs
from services.gateway.clients.registry import APIS
from services.operator.counters import OperatorCounters
from services.operator.monitoring import families
from tests.servers.cluster import START_SECONDS, Cluster, ServiceProcess, running_cluster
from tests.servers.etcd import running_etcd
from tests.servers.minio import Minio
from tests.services.conftest import MakeCluster
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import ClientError, Message
from tests.support.metrics_catalogue import expressions, selectors
from tests.support.proxies.s3 import HEALTHY, S3FaultProxy, S3Faults
from tests.support.shell import Shell

_ROOT = Path(__file__).resolve().parents[2]
_MAY_NOT_OCCUR = {
    "api": {api.name for api in APIS.values()},
    "error": {error.name.upper() for error in ErrorCode},
    "operation": set(WITH_BODIES),
    "outcome": OUTCOMES,
    "service": {"all"},
}
"""Label values that alerts and dashboards name and that do not occur in normal operation."""

_SHORT_WINDOW = {"KAFSCALE_S3_HEALTH_WINDOW_SEC": "4"}
"""Checks S3 every two seconds if there are no other requests."""


def ask(process: ServiceProcess, path: str) -> tuple[int, str]:
    found = httpcore.request("GET", f"http://{process.http}{path}")
    return found.status, found.content.decode()


def readiness(process: ServiceProcess) -> tuple[int, dict[str, Any]]:
    status, body = ask(process, "/readyz")
    return status, json.loads(body)["checks"]


def documented(service: str) -> dict[str, Described]:
    return {metric.name: metric for group in docs.METRICS if service in group.services for metric in group.metrics}


def exposed(process: ServiceProcess) -> dict[str, Metric]:
    """Return what a process exposes, with metric names as in the documents."""
    _, text = ask(process, "/metrics")
    found = list(text_string_to_metric_families(text))
    return {f"{metric.name}_total" if metric.type == "counter" else metric.name: metric for metric in found}


def value_of(process: ServiceProcess, name: str, **labels: str) -> float:
    """Return the sum of the samples of ``name`` that have ``labels``; for a histogram, its number of observations."""
    metric = exposed(process)[name]
    wanted = f"{name}_count" if metric.type == "histogram" else name
    samples = [sample for sample in metric.samples if sample.name == wanted]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


_OF_THROTTLED = {"kafscale_gateway_throttled_requests_total", "kafscale_gateway_throttle_seconds_total"}


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Produce ten records, commit three in a group, and send a request that is refused and one of an operator."""
    client = ConfluentClient(cluster.bootstrap)
    client.create_topic("orders", partitions=1)
    with pytest.raises(ClientError):
        client.create_topic("orders", partitions=1)
    client.produce("orders", [Message(value=b"%d" % number) for number in range(10)])
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    try:
        consumer.subscribe(["orders"])
        assert len(consumer.consume(10, timeout=60)) == 10
        consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
        assert Shell({}, cluster.gateways[0].address).rows("topic list")
        yield
    finally:
        consumer.close()


async def test_each_process_exposes_exactly_the_documented_metrics(
    make_cluster: MakeCluster,
) -> None:
    env = {"KAFSCALE_GROUP_LAG_INTERVAL_MS": "200", "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    with make_cluster(env=env) as cluster, load(cluster):
        (gateway,), (storage,), (coordinator,) = cluster.gateways, cluster.storages, cluster.coordinators
        await until(lambda: value_of(coordinator, "kafscale_coordinator_group_lag") == 7, seconds=60)
        values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for process in cluster.processes:
            reported = [json.loads(line) for line in process.log.read_text().splitlines()]
            assert {(line["service"], line["instance"]) for line in reported} == {(process.service, process.address)}
            assert [line["event"] for line in reported].count("serving") == 1
            assert ask(process, "/healthz") == (200, "ok\n")
            assert readiness(process)[0] == 200
            found, wanted = exposed(process), documented(process.service)
            assert found.keys() == wanted.keys()
            silent = {name for name, metric in found.items() if not metric.samples}
            # There are no quotas.
            assert silent == (_OF_THROTTLED if process.service == "gateway" else set())
            for name, metric in found.items():
                assert (metric.type, metric.documentation) == (wanted[name].kind, wanted[name].help)
                for sample in metric.samples:
                    assert sample.labels.keys() - {"le"} == set(wanted[name].labels), name
                    for label, value in sample.labels.items():
                        values[name, label].add(value)
        assert value_of(gateway, "kafscale_gateway_request_seconds", api="Produce") == value_of(
            gateway, "kafscale_gateway_requests_total", api="Produce"
        )
        refused = {"api": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
        assert value_of(gateway, "kafscale_gateway_errors_total", **refused) == 1
        assert value_of(gateway, "grpc_client_handled_total", grpc_method="Append", grpc_code="OK") >= 1
        assert value_of(storage, "grpc_server_handled_total", grpc_method="Append", grpc_code="OK") >= 1
        assert value_of(storage, "kafscale_storage_appended_records_total") == 10
        assert value_of(storage, "kafscale_storage_flushes_total") >= 1
        assert value_of(coordinator, "kafscale_coordinator_groups", state="Stable") == 1
        assert value_of(coordinator, "kafscale_coordinator_rebalances_total") >= 1
    # No operator runs in this cluster, so its initial metrics are read here.
    for family in families(OperatorCounters(), lambda: 0.0):
        for labels in family.read():
            for label, value in zip(family.labels, labels, strict=True):
                values[family.name, label].add(value)
    for expression in expressions():
        for selector in selectors(expression):
            for label in selector.matchers:
                name = re.sub("_(bucket|count|sum)$", "", selector.metric)
                known = values[name, label] | _MAY_NOT_OCCUR.get(label, set())
                assert selector.values(label) <= known, f"{label}: {expression}"


async def test_health_follows_the_indexers_without_a_flush(make_cluster: MakeCluster) -> None:
    with make_cluster() as cluster:
        (storage,), (indexer,) = cluster.storages, cluster.indexers

        def state() -> str:
            return str(readiness(storage)[1]["indexers"]["state"])

        await until(lambda: state() == "healthy", seconds=10)
        indexer.stop()
        await until(lambda: state() == "degraded", seconds=10)
        indexer.start()
        await until(lambda: state() == "healthy", seconds=START_SECONDS)


async def test_two_storage_instances_with_one_address_are_not_both_ready(make_cluster: MakeCluster) -> None:
    with make_cluster() as cluster:
        (first,) = cluster.storages
        second = cluster.add("storage", KAFSCALE_RPC_ADVERTISED_ADDR=first.address)
        second.start()
        second.await_ready()
        await until(lambda: readiness(first)[0] == 503, seconds=10)
        checks = readiness(first)[1]
        assert checks["address"]["state"] == "unavailable"
        assert first.address in checks["address"]["reason"]
        changes = [event for event in first.events("health check changed") if event["check"] == "address"]
        assert [event["state"] for event in changes] == ["unavailable"]
        second.stop()
        await until(lambda: readiness(first)[0] == 200, seconds=10)


def test_a_planned_stop_logs_no_warning(make_cluster: MakeCluster) -> None:
    with make_cluster() as cluster:
        for process in (*cluster.gateways, *cluster.storages, *cluster.indexers, *cluster.coordinators):
            assert process.stop() == 0
            lines = [json.loads(line) for line in process.log.read_text().splitlines()]
            stopping = next(place for place, line in enumerate(lines) if line["event"] == "stopping")
            assert [line for line in lines[stopping:] if line["level"] not in ("info", "debug")] == []


async def until(true: Callable[[], bool], *, seconds: float) -> None:
    with trio.fail_after(seconds):
        while not await trio.to_thread.run_sync(true):  # noqa: ASYNC110  another process does it
            await trio.sleep(0.2)


def values(client: ConfluentClient, count: int) -> list[bytes | None]:
    return [record.value for record in client.consume("orders", count=count, offset=0)]


async def test_reads_work_and_health_recovers_when_s3_throttles_and_etcd_is_silent(
    minio: Minio, tmp_path: Path
) -> None:
    proxy = S3FaultProxy(minio.endpoint.removeprefix("http://"), random.Random(1).random)
    with ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            through = Minio(f"http://{proxy.address}")
            etcd = stack.enter_context(running_etcd(_created(tmp_path / "etcd")))
            cluster: Cluster = await trio.to_thread.run_sync(
                lambda: stack.enter_context(
                    running_cluster(_created(tmp_path / "cluster"), etcd=etcd, minio=through, env=_SHORT_WINDOW)
                )
            )
            client = ConfluentClient(cluster.bootstrap)
            await trio.to_thread.run_sync(lambda: client.create_topic("orders", partitions=1))
            records = [Message(value=b"%d" % number) for number in range(10)]
            await trio.to_thread.run_sync(lambda: client.produce("orders", records))
            (storage,), (gateway,) = cluster.storages, cluster.gateways
            assert readiness(storage)[1]["lifecycle"]["state"] == "healthy"

            proxy.faults = S3Faults(slow_down=1.0)
            await until(lambda: readiness(storage)[0] == 503, seconds=20)
            assert readiness(storage)[1]["s3"]["state"] == "unavailable"
            assert (await trio.to_thread.run_sync(readiness, gateway))[0] == 200
            written = [record.value for record in records]
            assert await trio.to_thread.run_sync(values, client, 10) == written
            proxy.faults = HEALTHY
            await until(lambda: readiness(storage)[0] == 200, seconds=15)

            for member in etcd.members:
                member.pause()
            await until(lambda: readiness(storage)[0] == 503, seconds=20)
            assert readiness(storage)[1]["lease"]["state"] == "unavailable"
            assert (await trio.to_thread.run_sync(readiness, gateway))[0] == 200
            assert await trio.to_thread.run_sync(values, client, 10) == written
            for member in etcd.members:
                member.resume()
            await until(lambda: readiness(storage)[0] == 200, seconds=30)
            await trio.to_thread.run_sync(lambda: client.produce("orders", records))
            assert await trio.to_thread.run_sync(values, client, 20) == written * 2

            for name in ("s3", "lease"):
                # S3 may be degraded for a moment, and late answers of etcd may prove the lease only for a moment.
                await until(lambda name=name: _reported(storage, name)[-1] == "healthy", seconds=30)  # type: ignore[misc]
                assert "unavailable" in _reported(storage, name)
            await trio.to_thread.run_sync(stack.close)
            nursery.cancel_scope.cancel()


def _reported(process: ServiceProcess, check: str) -> list[str]:
    """Return the states of a health check that a process has logged."""
    return [str(event["state"]) for event in process.events("health check changed") if event["check"] == check]


def _created(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory
