"""Coordinators on a real etcd: what members see when one dies, and how long a take-over lasts."""

from pathlib import Path

import pytest
import trio

from kafscale import paths
from kafscale.metadata.etcd import open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.v1 import coordinator_pb2 as pb
from tests.servers.etcd import running_etcd
from tests.support.coordinator.harness import E
from tests.support.coordinator.shell import NAMESPACE, Consumer, coordinators, stable

LEASE_SECONDS = 2
GROUPS = [f"group {number}/ü" for number in range(30)]


async def test_the_death_of_a_coordinator_loses_no_commit_and_rebalances_no_stable_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_etcd(tmp_path) as server:
        config = EtcdConfig(endpoints=tuple(server.endpoints), timeout_seconds=30)
        async with (
            open_etcd(config, random=lambda: 0.5) as metadata,
            coordinators(metadata, "a:1", "b:1", lease_ttl_seconds=LEASE_SECONDS) as made,
            trio.open_nursery() as nursery,
        ):
            members: list[Consumer] = []

            async def form(group: str) -> None:
                members.extend(await stable(made, nursery, 2, group))

            async with trio.open_nursery() as forming:
                for group in GROUPS:
                    forming.start_soon(form, group)
            for member in members:
                await made.commit({0: 1, 300: 2}, member.group, member.member_id, member.generation)
            # etcd does not accept this many operations in one transaction.
            await made.commit({number: number for number in range(500)}, "many")
            joins = [list(member.joins) for member in members]
            first = made.instances[0]
            orphans = [group for group in GROUPS if made.assigned(group) is first]
            assert 0 < len(orphans) < len(GROUPS)
            began = trio.current_time()
            await first.kill()
            for group in orphans:
                assert await made.offsets(group) == {0: 1, 300: 2}
            took = trio.current_time() - began
            assert await made.offsets("many") == {number: number for number in range(500)}
            assert {await member.beat() for member in members} == {E.NONE}
            assert [list(member.joins) for member in members] == joins
            [second] = made.instances
            await second.stop()
            shards = await metadata.read_prefix(paths.group_shards_prefix(NAMESPACE))
            nursery.cancel_scope.cancel()
        assert len(shards.items) == paths.GROUP_SHARDS
    with capsys.disabled():
        print(f"\n{len(orphans)} groups of a killed coordinator were served after {took:.2f} s, leases of 2 s")


async def test_a_large_rebalance_is_stored_and_loaded_again(tmp_path: Path) -> None:
    size = 150
    with running_etcd(tmp_path) as server:
        config = EtcdConfig(endpoints=tuple(server.endpoints), timeout_seconds=30)
        async with (
            open_etcd(config, random=lambda: 0.5) as metadata,
            coordinators(metadata, "a:1", lease_ttl_seconds=LEASE_SECONDS) as made,
            trio.open_nursery() as nursery,
        ):
            members = await stable(made, nursery, size)
            await made.instances[0].stop()
            await made.start("b:1", lease_ttl_seconds=LEASE_SECONDS)
            assert {await member.beat() for member in members} == {E.NONE}
            reply = await made.ask("describe_groups", pb.DescribeGroupsRequest(groups=["g"]))
            found = {member.member_id: member.assignment for member in reply.groups[0].members}
            assert found == {member.member_id: member.assignment for member in members}
            assert len(found) == size
            nursery.cancel_scope.cancel()
