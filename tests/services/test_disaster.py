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
from tests.support.chaos.clients import PARTITIONS, TOPIC, groups, last_readers, producers
from tests.support.chaos.history import events, judge
from tests.support.chaos.progress import await_acks, finish, until
from tests.support.clients.confluent import ConfluentClient
from tests.support.shell import LONG_SECONDS, Shell, once

_BY_THE_CLIENT = ("enable.auto.commit=true", "auto.commit.interval.ms=500")
"""Commits, which may fail while there is no coordinator: that is no error of the application's."""


@pytest.mark.timeout(600)  # who is behind is named after 300 seconds
async def test_etcd_is_lost_and_nothing_that_was_acked(minio: Minio, tmp_path: Path) -> None:
    """The same producers and the same members of groups go on, of librdkafka and of Java.

    Each record is in the log once, in order, where its ack said, and no group passes one over. While etcd is empty
    nothing is deleted.
    """
    clients = tmp_path / "clients"
    with ExitStack() as stack:
        for directory in (clients, tmp_path / "etcd", tmp_path / "lost"):
            directory.mkdir()
        etcd = stack.enter_context(running_etcd(tmp_path / "etcd"))
        cluster = stack.enter_context(running_cluster(tmp_path / "lost", etcd=etcd, minio=minio, storages=2))
        shell = Shell(cluster.env, cluster.gateways[0].address)
        ConfluentClient(cluster.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        members = groups(cluster.bootstrap, clients, *_BY_THE_CLIENT)
        made = producers(cluster.bootstrap, clients)
        senders = {client: promise for client, promise in made.items() if client.name in ("librdkafka", "java")}
        (*_, witness) = last_readers(cluster.bootstrap, clients)
        async with trio.open_nursery() as nursery:
            for member in members:
                await nursery.start(member.run)
            share = [PARTITIONS // 2] * 2
            await until(
                lambda: [who.name for who in members if list(who.given.values()) != share],
                LONG_SECONDS,
                "no shares for",
            )
            for sender in senders:
                await nursery.start(sender.run)
            await await_acks(senders, LONG_SECONDS)
            for member in members:
                await trio.to_thread.run_sync(_await_commits, shell, member.name)
            assert (await _run(shell, "backup --keep 2")).returncode == 0
            await await_acks(senders, LONG_SECONDS)

            planned = await trio.to_thread.run_sync(_lose_and_restore, cluster, etcd.members[0], shell)
            ends = {log["partition"]: log["log_end"] for log in planned["topics"][0]["partitions"]}
            # Nothing was acked from the kill on: no service ran.
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
        # From the snapshot's offsets on.
        repeating={member.name for member in members},
    )
    assert verdict.complaints == []
    assert [verdict.producers[sender.name].failed for sender in senders] == [{}] * len(senders)
    assert [member.name for member in members if verdict.read[member.name] < verdict.in_log] == []


async def _run(shell: Shell, command: str) -> Any:
    return await trio.to_thread.run_sync(partial(shell.run, command))


def _await_commits(shell: Shell, group: str) -> None:
    """So that the snapshot has an offset of each partition."""
    once(
        f"{group} has committed",
        lambda: shell.json(f"group describe {group}")["offsets"],
        lambda offsets: len([each for each in offsets if each["committed"] > 0]) == PARTITIONS,
    )


def _lose_and_restore(cluster: Cluster, etcd: Member, shell: Shell) -> Any:
    """With all services stopped; gives what the restore was to do."""
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
    # It has made a cluster there.
    etcd.lose()

    assert shell.run("restore --snapshot 1700000000000-1 --yes").returncode == Exit.NOT_FOUND
    planned = shell.json("restore --dry-run")
    done = shell.run("restore --yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 topic restored; start the services")
    assert shell.run("restore --yes").returncode == Exit.REFUSED
    assert stored.keys() <= _objects(cluster).keys()
    return planned


def _objects(cluster: Cluster) -> dict[str, str]:
    """All of the cluster's, with their ETags."""
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
