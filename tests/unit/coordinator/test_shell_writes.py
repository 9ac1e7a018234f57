"""Writes in flight, and requests that wait for them."""

from itertools import count

import trio

from kafscale import paths
from kafscale.metadata.memory import Fault, MemoryMetadataStore
from kafscale.v1 import coordinator_pb2 as pb
from tests.support.coordinator.harness import E
from tests.support.coordinator.shell import NAMESPACE, TIMEOUT, coordinators


async def test_a_write_in_flight_does_not_delay_other_groups_of_its_shard(autojump_clock: object) -> None:
    shard = paths.group_shard("g")
    other = next(name for name in map("other-{}".format, count()) if paths.group_shard(name) == shard)
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        for group in ("g", other):
            await made.commit({0: 1}, group)
        stored = trio.Event()

        async def commit() -> None:
            await made.commit({0: 2})
            stored.set()

        store.faults.append(Fault(method="txn", key=paths.GroupKeys(NAMESPACE, "g").header, delay=1))
        nursery.start_soon(commit)
        await trio.sleep(0.5)
        began = trio.current_time()
        await made.commit({0: 3}, other)
        assert await made.offsets(other) == {0: 3}
        beats = [pb.MemberHeartbeat(group=other, member_id="nobody", generation=1)]
        reply = await made.instances[0].client.heartbeat(pb.HeartbeatRequest(heartbeats=beats), timeout=TIMEOUT)
        assert [result.error for result in reply.results] == [E.UNKNOWN_MEMBER_ID]
        assert trio.current_time() == began
        assert not stored.is_set()
        await stored.wait()
        assert await made.offsets() == {0: 2}
