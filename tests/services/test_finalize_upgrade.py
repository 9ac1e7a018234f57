"""A cluster with records gets intakes by `kafscale finalize-upgrade` and a rolling restart of storage."""

from pathlib import Path

import minio as client_of_minio
import trio

from kafscale import paths
from kafscale.metadata.etcd import open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.metadata.interface import Put
from kafscale.metadata.topic_values import ClusterInfo
from tests.servers.cluster import Cluster, ServiceProcess
from tests.servers.etcd import Etcd
from tests.services.conftest import MakeCluster
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message
from tests.support.shell import Shell, once


async def _begin_with_format_1(etcd: Etcd, namespace: str) -> None:
    async with open_etcd(EtcdConfig(endpoints=tuple(etcd.endpoints), timeout_seconds=30), random=lambda: 0.5) as store:
        await store.txn((), [Put(paths.cluster_key(namespace), ClusterInfo("A" * 22, 0).value())])


def _intakes(cluster: Cluster) -> set[str]:
    """Return the runs that have intake objects."""
    server = cluster.minio
    client = client_of_minio.Minio(
        server.endpoint.removeprefix("http://"), server.access_key, server.secret_key, secure=False
    )
    prefix = paths.intakes_prefix(cluster.env["KAFSCALE_S3_NAMESPACE"])
    found = client.list_objects(cluster.env["KAFSCALE_S3_BUCKET"], prefix, recursive=True)
    return {str(each.object_name).removeprefix(prefix).split("/")[0] for each in found}


def _restart(process: ServiceProcess) -> None:
    assert process.stop() == 0
    process.start()
    process.await_ready()


def _has_intake(shell: Shell) -> list[bool]:
    return sorted(each["intake"] for each in shell.json("cluster")["members"] if each["service"] == "storage")


def test_storage_has_intakes_after_the_command_and_a_rolling_restart(
    make_cluster: MakeCluster, etcd: Etcd, tmp_path: Path
) -> None:
    trio.run(_begin_with_format_1, etcd, tmp_path.name)
    values = [b"%d" % number for number in range(300)]
    with make_cluster(storages=2, env={"KAFSCALE_S3_NAMESPACE": tmp_path.name}) as cluster:
        shell, client = Shell(cluster.env, cluster.gateways[0].address), ConfluentClient(cluster.bootstrap)
        client.create_topic("orders")
        client.produce("orders", [Message(value) for value in values[:100]])
        assert shell.json("finalize-upgrade --yes") == {"before": 1, "state_format": 3}
        assert _has_intake(shell) == [False, False]
        first, second = cluster.storages
        _restart(first)
        once("one intake", lambda: _has_intake(shell), lambda found: found == [False, True])
        client.produce("orders", [Message(value) for value in values[100:200]])
        _restart(second)
        once("two intakes", lambda: _has_intake(shell), lambda found: found == [True, True])
        assert "\nState format 3\n" in shell.run("cluster").stdout
        client.produce("orders", [Message(value) for value in values[200:]])
        runs = {each["run_id"] for each in shell.json("cluster")["members"] if each["service"] == "storage"}
        assert _intakes(cluster) & runs
        assert [each.value for each in client.consume("orders", count=300)] == values
