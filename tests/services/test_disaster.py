"""etcd is lost under load, and restored with the commands of docs/guides/backup-and-restore.md."""

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import minio as client_of_minio
import pytest
import trio

from kafscale.process.signals import EXIT_CONFIG
from kafscale_tools.cli.exits import Exit
from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Member, running_etcd
from tests.servers.minio import Minio
from tests.support.chaos.clients import COMMITTED_BY_CLIENT, PARTITIONS, TOPIC, groups, last_readers, producers
from tests.support.chaos.history import events, judge
from tests.support.chaos.progress import await_acks, await_shares, finish
from tests.support.clients.confluent import ConfluentClient
from tests.support.shell import LONG_SECONDS, Shell, once


@pytest.mark.timeout(600)  # clients without progress are reported after 300 seconds
async def test_no_acked_record_is_lost_when_etcd_is_lost(minio: Minio, tmp_path: Path) -> None:
    """The same producers and group members, of librdkafka and of Java, continue after the restore.

    Each record is in the log once, in order, at its acked offset, and no group skips one. Nothing is deleted while etcd
    is empty.
    """
    clients = tmp_path / "clients"
    with ExitStack() as stack:
        for directory in (clients, tmp_path / "etcd", tmp_path / "lost"):
            directory.mkdir()
        etcd = stack.enter_context(running_etcd(tmp_path / "etcd"))
        cluster = stack.enter_context(running_cluster(tmp_path / "lost", etcd=etcd, minio=minio, storages=2))
        shell = Shell(cluster.env, cluster.gateways[0].address)
        ConfluentClient(cluster.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        members = groups(cluster.bootstrap, clients, *COMMITTED_BY_CLIENT)
        made = producers(cluster.bootstrap, clients)
        senders = {client: promise for client, promise in made.items() if client.name in ("librdkafka", "java")}
        (*_, witness) = last_readers(cluster.bootstrap, clients)
        async with trio.open_nursery() as nursery:
            for member in members:
                await nursery.start(member.run)
            await await_shares(members, LONG_SECONDS)
            for sender in senders:
                await nursery.start(sender.run)
            await await_acks(senders, LONG_SECONDS)
            for member in members:
                await trio.to_thread.run_sync(_await_commits, shell, member.name)
            assert (await _run(shell, "backup --keep 2")).returncode == 0
            await await_acks(senders, LONG_SECONDS)

            planned = await trio.to_thread.run_sync(_lose_and_restore, cluster, etcd.members[0], shell)
            ends = {log["partition"]: log["log_end"] for log in planned["topics"][0]["partitions"]}
            # No service ran after the kill, so nothing was acked.
            acked = {at: max(sender.highest[at] for sender in senders) for at in range(PARTITIONS)}
            assert {at: end >= acked[at] for at, end in ends.items()} == dict.fromkeys(range(PARTITIONS), True)

            await trio.to_thread.run_sync(_start, cluster)
            await await_acks(senders, LONG_SECONDS)
            await finish(senders, members, print)
        states = (await trio.to_thread.run_sync(shell.json, f"partition list {TOPIC}"))["partitions"]
        assert all(state["epoch"] > planned["epoch"] for state in states)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(witness.run)
    verdict = judge(
        events(clients),
        {client.name: promise for client, promise in senders.items()},
        last_reader=witness.name,
        # Members continue from the offsets in the snapshot.
        repeating={member.name for member in members},
    )
    assert verdict.complaints == []
    assert [verdict.producers[sender.name].failed for sender in senders] == [{}] * len(senders)
    assert [member.name for member in members if verdict.read[member.name] < verdict.in_log] == []


async def _run(shell: Shell, command: str) -> Any:
    return await trio.to_thread.run_sync(partial(shell.run, command))


def _await_commits(shell: Shell, group: str) -> None:
    """Wait until the group has committed an offset in each partition, so that the snapshot has them all."""
    once(
        f"{group} has committed",
        lambda: shell.json(f"group describe {group}")["offsets"],
        lambda offsets: len([each for each in offsets if each["committed"] > 0]) == PARTITIONS,
    )


def _lose_and_restore(cluster: Cluster, etcd: Member, shell: Shell) -> Any:
    """Lose and restore etcd while all services are stopped. Return what the restore reported as its plan."""
    assert len(shell.json("backup --list")["snapshots"]) == 1
    for process in cluster.processes:
        process.kill()
    etcd.lose()
    stored = _objects(cluster)
    storage = cluster.storages[0]
    storage.start()
    deadline = time.monotonic() + LONG_SECONDS
    while storage.running and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not storage.running
    assert storage.stop() == EXIT_CONFIG
    assert "belong to cluster" in storage.log.read_text()
    assert _objects(cluster) == stored
    # The process has created a cluster in the new etcd.
    etcd.lose()

    assert shell.run("restore --snapshot 1700000000000-1 --yes").returncode == Exit.NOT_FOUND
    planned = shell.json("restore --dry-run")
    done = shell.run("restore --yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 topic restored; start the services")
    assert shell.run("restore --yes").returncode == Exit.REFUSED
    assert stored.keys() <= _objects(cluster).keys()
    return planned


def _objects(cluster: Cluster) -> dict[str, str]:
    """Return all objects of the cluster with their ETags."""
    server = cluster.minio
    client = client_of_minio.Minio(
        server.endpoint.removeprefix("http://"), server.access_key, server.secret_key, secure=False
    )
    found = client.list_objects(cluster.env["KAFSCALE_S3_BUCKET"], recursive=True)
    return {each.object_name: each.etag for each in found}


def _start(cluster: Cluster) -> None:
    for process in cluster.processes:
        process.start()
    for process in cluster.processes:
        process.await_ready()
