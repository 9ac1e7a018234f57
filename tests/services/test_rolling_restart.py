"""A rolling restart of every process by SIGTERM, under clients with their libraries' defaults."""

import socket
from pathlib import Path

import trio

from tests.servers.cluster import ServiceProcess
from tests.services.conftest import MakeCluster
from tests.support.chaos.clients import PARTITIONS, TOPIC, default_producers, groups, last_readers
from tests.support.chaos.history import RECONNECTS, events, judge
from tests.support.chaos.progress import await_acks, await_shares, finish
from tests.support.clients.confluent import ConfluentClient

_PATIENCE = 120.0
_FOREVER = {"KAFSCALE_GATEWAY_SHUTDOWN_GRACE_MS": "600000"}
"""A gateway does not wait for idle clients when it stops."""


def _stop(process: ServiceProcess) -> None:
    """Send SIGTERM and wait for the exit. A gateway does not wait for clients that send no requests."""
    if process.service != "gateway":
        assert process.stop() == 0
        return
    host, _, port = process.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE) as idle:
        assert process.stop() == 0
        assert idle.recv(1) == b""


async def _restart(process: ServiceProcess) -> None:
    await trio.to_thread.run_sync(_stop, process)
    process.start()
    await trio.to_thread.run_sync(process.await_ready)
    while not await trio.to_thread.run_sync(process.is_ready):  # noqa: ASYNC110  another process does it
        await trio.sleep(0.1)


async def test_no_application_sees_an_error_during_a_rolling_restart(make_cluster: MakeCluster, tmp_path: Path) -> None:
    directory = tmp_path / "clients"
    directory.mkdir()
    with make_cluster(gateways=2, storages=2, coordinators=2, env=_FOREVER) as cluster:
        await trio.to_thread.run_sync(
            lambda: ConfluentClient(cluster.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        )
        # With the default, latest, a member misses what is produced before it has asked where the log ends.
        members = groups(cluster.bootstrap, directory, "auto.offset.reset=earliest")
        senders = default_producers(cluster.bootstrap, directory)
        (*_, witness) = last_readers(cluster.bootstrap, directory)
        async with trio.open_nursery() as nursery:
            for client in members:
                await nursery.start(client.run)
            await await_shares(members, _PATIENCE)
            for client in senders:
                await nursery.start(client.run)
            await await_acks(senders, _PATIENCE)
            for process in cluster.processes:
                await _restart(process)
                await await_acks(senders, _PATIENCE)
            await finish(senders, members, print)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(witness.run)
    verdict = judge(
        events(directory), {client.name: promise for client, promise in senders.items()}, last_reader=witness.name
    )
    assert verdict.complaints == []
    assert set().union(*verdict.noted.values()) <= RECONNECTS
    assert {name: sums.failed for name, sums in verdict.producers.items()} == {each.name: {} for each in senders}
    # The verdict says that no record was skipped; a member may read records again that it had not committed.
    assert [client.name for client in members if client.read < verdict.in_log] == []
