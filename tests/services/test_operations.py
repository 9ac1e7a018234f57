"""What the four processes show of themselves, while all is well, while S3 throttles, and while etcd stands still."""

import json
import random
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpcore
import trio

from tests.chaos.s3_proxy import HEALTHY, S3FaultProxy, S3Faults
from tests.clients.adapters.confluent import ConfluentClient
from tests.clients.adapters.interface import Message
from tests.servers.cluster import START_SECONDS, Cluster, ServiceProcess, running_cluster
from tests.servers.etcd import running_etcd
from tests.servers.minio import Minio
from tests.services.conftest import MakeCluster

_DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
_ROW = re.compile(r"^\| `(kafscale_\w+)` \| (\w+) \| [\w, -]+ \| (.*) \|$", re.MULTILINE)
_SHOWN_BY = {
    "Every process": ("gateway", "storage", "indexer", "coordinator"),
    "Storage, indexer": ("storage", "indexer"),
    "Storage": ("storage",),
    "Gateway": ("gateway",),
    "Coordinator": ("coordinator",),
}

_SHORT_WINDOW = {"KAFSCALE_S3_HEALTH_WINDOW_SEC": "4"}
"""So that who asks S3 for nothing looks at it every two seconds."""


def ask(process: ServiceProcess, path: str) -> tuple[int, str]:
    found = httpcore.request("GET", f"http://{process.http}{path}")
    return found.status, found.content.decode()


def readiness(process: ServiceProcess) -> tuple[int, dict[str, Any]]:
    status, body = ask(process, "/readyz")
    return status, json.loads(body)["checks"]


def documented() -> dict[str, set[tuple[str, str, str]]]:
    """Name, type and meaning of each metric that docs/operations.md has for a service."""
    text = _DOCUMENT.read_text()
    metrics = text[text.index("## Metrics") : text.index("## Alerts")]
    found: dict[str, set[tuple[str, str, str]]] = {}
    for heading, body in re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", metrics, re.MULTILINE | re.DOTALL):
        for service in _SHOWN_BY[heading]:
            found.setdefault(service, set()).update(_ROW.findall(body))
    return found


def shown(process: ServiceProcess) -> set[tuple[str, str, str]]:
    _, text = ask(process, "/metrics")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = re.findall(r"^# HELP (kafscale_\S+) (.*)$", text, re.MULTILINE)
    return {(name, types[name], meaning) for name, meaning in helps}


def test_pitfall_42_each_process_shows_the_metrics_that_are_documented_and_no_others(
    make_cluster: MakeCluster,
) -> None:
    with make_cluster() as cluster:
        wanted = documented()
        for process in cluster.processes:
            told = [json.loads(line) for line in process.log.read_text().splitlines()]
            assert {(line["service"], line["instance"]) for line in told} == {(process.service, process.address)}
            assert [line["event"] for line in told].count("serving") == 1
            assert ask(process, "/healthz") == (200, "ok\n")
            assert readiness(process)[0] == 200
            assert shown(process) == wanted[process.service]
    mentioned = set(re.findall(r"\bkafscale_[a-z0-9_]+", _DOCUMENT.read_text()))
    assert mentioned == {name for metrics in wanted.values() for name, _, _ in metrics}


async def test_indexers_that_go_and_come_are_shown_without_a_flush(make_cluster: MakeCluster) -> None:
    with make_cluster() as cluster:
        (storage,), (indexer,) = cluster.storages, cluster.indexers

        def state() -> str:
            return str(readiness(storage)[1]["indexers"]["state"])

        await until(lambda: state() == "healthy", seconds=10)
        indexer.stop()
        await until(lambda: state() == "degraded", seconds=10)
        indexer.start()
        await until(lambda: state() == "healthy", seconds=START_SECONDS)


async def test_two_storage_instances_at_one_address_are_not_both_ready(make_cluster: MakeCluster) -> None:
    with make_cluster() as cluster:
        (first,) = cluster.storages
        second = cluster.add("storage", KAFSCALE_RPC_ADVERTISED_ADDR=first.address)
        second.start()
        second.await_ready()
        await until(lambda: readiness(first)[0] == 503, seconds=10)
        checks = readiness(first)[1]
        assert checks["address"]["state"] == "unavailable"
        assert first.address in checks["address"]["reason"]
        assert [event["state"] for event in first.events("health") if event["check"] == "address"] == ["unavailable"]
        second.stop()
        await until(lambda: readiness(first)[0] == 200, seconds=10)


def test_a_planned_stop_warns_of_nothing(make_cluster: MakeCluster) -> None:
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


async def test_throttling_s3_and_a_silent_etcd_are_shown_reads_go_on_and_all_gets_well_by_itself(
    minio: Minio, tmp_path: Path
) -> None:
    proxy = S3FaultProxy(minio.endpoint.removeprefix("http://"), random.Random(1).random)
    with ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            through = Minio(f"http://{proxy.address}")
            etcd = stack.enter_context(running_etcd(_made(tmp_path / "etcd")))
            cluster: Cluster = await trio.to_thread.run_sync(
                lambda: stack.enter_context(
                    running_cluster(_made(tmp_path / "cluster"), etcd=etcd, minio=through, env=_SHORT_WINDOW)
                )
            )
            client = ConfluentClient(cluster.bootstrap)
            await trio.to_thread.run_sync(lambda: client.create_topic("orders", partitions=1))
            records = [Message(value=b"%d" % number) for number in range(10)]
            await trio.to_thread.run_sync(lambda: client.produce("orders", records))
            (storage,), (gateway,) = cluster.storages, cluster.gateways

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

            told = [(event["check"], event["state"]) for event in storage.events("health")]
            assert [state for check, state in told if check == "s3"][-2:] == ["unavailable", "healthy"]
            assert [state for check, state in told if check == "lease"][-2:] == ["unavailable", "healthy"]
            await trio.to_thread.run_sync(stack.close)
            nursery.cancel_scope.cancel()


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory
