"""Hand-over with a real etcd. The time that idle partitions take to move is printed."""

from pathlib import Path

import pytest
import trio

from kafscale.metadata.etcd import open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.v1.common_pb2 import Status
from tests.servers.etcd import running_etcd
from tests.support.storage.cluster import cluster, until
from tests.support.storage.harness import World, siblings
from tests.support.storage.sequences import numbered, numbers

PARTITIONS = 40


async def test_partitions_move_to_a_new_instance_and_back_when_it_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_etcd(tmp_path) as server:
        config = EtcdConfig(endpoints=tuple(server.endpoints), timeout_seconds=30)
        async with (
            open_etcd(config, random=lambda: 0.5) as metadata,
            cluster(World(), "a:1", metadata=metadata) as moving,
        ):
            (first,) = moving.instances
            refs = siblings(await moving.world.topic(first.catalog, partitions=PARTITIONS), PARTITIONS)
            for ref in refs:
                await moving.append_durably(ref, numbered(0))

            async def all_where_given() -> bool:
                owners = await moving.owners()
                return list(owners.values()).count(newcomer.caller.run_id) == len(given_to_the_newcomer)

            newcomer = await moving.start("b:1")
            given_to_the_newcomer = [ref for ref in refs if moving.assigned(ref) is newcomer]
            came = await until(all_where_given, seconds=60)
            one = given_to_the_newcomer[0]
            for ref in refs:
                assert (await moving.append_durably(ref, numbered(1))).base_offset == 1
            began = trio.current_time()
            moving.refusals = 0
            async with trio.open_nursery() as nursery:
                nursery.start_soon(newcomer.stop)
                while moving.assigned(one) is newcomer:  # noqa: ASYNC110  the members' view is awaited by its name only
                    await trio.sleep(0.001)
                _, answer = await moving.append(one, numbered(2))
                answered = trio.current_time() - began
            left = trio.current_time() - began
            assert answer.status == Status.OK
            for ref in refs:
                assert (await moving.append_durably(ref, numbered(2))).base_offset == 2
                assert await moving.read_all(ref) == numbers(3)
    with capsys.disabled():
        moved = len(given_to_the_newcomer)
        print(
            f"\n{moved} idle partitions moved to a newcomer in {came:.2f} s, back in {left:.2f} s; an append to one of "
            f"them was taken after {answered:.2f} s and {moving.refusals} refusals"
        )
