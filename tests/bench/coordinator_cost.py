"""The cost of groups in a coordinator on etcd: `python -m tests.bench.coordinator_cost`.

It measures rebalances of groups of several sizes, in which every member rejoins and syncs; the memory of waiting
JoinGroup calls; and the time in which the next coordinator loads idle groups.
"""

import gc
import tempfile
import time
import tracemalloc
from pathlib import Path

import click
import trio

from kafscale import paths
from kafscale.metadata.etcd import open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.v1 import coordinator_pb2 as pb
from tests.servers.etcd import running_etcd
from tests.support.coordinator.harness import E, subscription
from tests.support.coordinator.shell import TIMEOUT, Coordinators, Instance, coordinators

_DELAY_MS = 5_000
_PARTITIONS = 12
_ASSIGNMENT = bytes(60)


class _Group:
    def __init__(self, instance: Instance, name: str) -> None:
        self._client = instance.client
        self._name = name
        self.members: list[str] = []
        self._joined: list[pb.JoinGroupReply] = []

    async def form(self, size: int) -> None:
        """Add new members. This waits for the initial rebalance delay."""
        await self.rebalance([""] * size)

    async def rebalance(self, members: list[str]) -> None:
        leader = next((reply.leader for reply in self._joined), members[0])
        self._joined.clear()
        async with trio.open_nursery() as nursery:
            # Until the leader has joined, the others would get the current generation again.
            nursery.start_soon(self._join, leader)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            others = list(members)
            others.remove(leader)
            for member_id in others:
                nursery.start_soon(self._join, member_id)
        self.members = [reply.member_id for reply in self._joined]
        async with trio.open_nursery() as nursery:
            for reply in self._joined:
                nursery.start_soon(self._sync, reply, reply.member_id == reply.leader)

    async def commit(self) -> None:
        request = pb.OffsetCommitRequest(
            group=self._name, member_id=self.members[0], generation=self._joined[0].generation, retention_ms=-1
        )
        for partition in range(_PARTITIONS):
            request.offsets.add(topic="orders", partition=partition, offset=1_000_000, leader_epoch=1)
        reply = await self._client.offset_commit(request, timeout=TIMEOUT)
        _check(reply.error)

    async def _join(self, member_id: str) -> None:
        request = pb.JoinGroupRequest(
            group=self._name,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[pb.GroupProtocol(name="cooperative-sticky", metadata=subscription("orders"))],
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=300_000,
            client_id="rdkafka",
            client_host="/10.0.0.1",
        )
        reply = await self._client.join_group(request, timeout=TIMEOUT)
        _check(reply.error)
        self._joined.append(reply)

    async def _sync(self, joined: pb.JoinGroupReply, leads: bool) -> None:
        request = pb.SyncGroupRequest(group=self._name, member_id=joined.member_id, generation=joined.generation)
        for member in self.members if leads else ():
            request.assignments.add(member_id=member, assignment=_ASSIGNMENT)
        _check((await self._client.sync_group(request, timeout=TIMEOUT)).error)


def _check(error: int) -> None:
    if error != E.NONE:
        raise RuntimeError(E.Code.Name(error))


async def _all_loaded(instance: Instance) -> None:
    run = instance.service.current
    if run is None:
        raise RuntimeError("the coordinator is not running")
    while len(run.shards) < paths.GROUP_SHARDS:  # noqa: ASYNC110  it has no event for it
        await trio.sleep(0.005)


async def _rebalances(made: Coordinators) -> None:
    [instance] = made.instances
    for size in (10, 100, 1000):
        group = _Group(instance, f"of-{size}")
        await group.form(size)
        began, cpu = trio.current_time(), time.process_time()
        await group.rebalance(group.members)
        wall, used = trio.current_time() - began, time.process_time() - cpu
        click.echo(f"{size} members rebalance in {wall * 1000:.0f} ms, {used * 1000:.0f} ms of CPU in this process")


async def _waiting(made: Coordinators, count: int) -> None:
    """Measure JoinGroup calls of a group that wait for its initial delay, including the task of each caller."""
    [instance] = made.instances
    group = _Group(instance, "waiting")
    gc.collect()
    tracemalloc.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.form, count)
        await trio.sleep(_DELAY_MS / 2000)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        nursery.cancel_scope.cancel()
    tracemalloc.stop()
    click.echo(f"waiting JoinGroup, with its member and its caller's task: {used / count:.0f} bytes")


async def _idle(made: Coordinators, count: int) -> None:
    [instance] = made.instances
    groups = [_Group(instance, f"idle-{number}") for number in range(count)]
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for group in groups:
            nursery.start_soon(group.form, 3)
    formed = trio.current_time() - began - _DELAY_MS / 1000
    async with trio.open_nursery() as nursery:
        for group in groups:
            nursery.start_soon(group.commit)
    stored = trio.current_time() - began - _DELAY_MS / 1000
    await instance.stop()
    gc.collect()
    tracemalloc.start()
    began, cpu = trio.current_time(), time.process_time()
    successor = await made.start("b:1", group_initial_rebalance_delay_ms=_DELAY_MS)
    await _all_loaded(successor)
    wall, used = trio.current_time() - began, time.process_time() - cpu
    gc.collect()
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    click.echo(
        f"{count} groups of 3 members and {_PARTITIONS} offsets: formed in {formed:.1f} s after the initial delay, "
        f"offsets stored by {stored:.1f} s; loaded by the next coordinator in {wall:.1f} s, "
        f"{used:.1f} s of CPU (traced), {memory / 1e6:.0f} MB, {memory / count:.0f} bytes each"
    )


async def _measure(groups: int) -> None:
    with tempfile.TemporaryDirectory() as directory, running_etcd(Path(directory)) as server:
        config = EtcdConfig(endpoints=tuple(server.endpoints), timeout_seconds=30)
        async with (
            open_etcd(config, random=lambda: 0.5) as metadata,
            coordinators(metadata, "a:1", lease_ttl_seconds=60, group_initial_rebalance_delay_ms=_DELAY_MS) as made,
        ):
            await _all_loaded(made.instances[0])
            await _rebalances(made)
            await _waiting(made, 1000)
            await _idle(made, groups)


@click.command()
@click.option("--groups", default=10_000, show_default=True)
def main(groups: int) -> None:
    """Print the measurements."""
    trio.run(_measure, groups)


if __name__ == "__main__":
    main()
