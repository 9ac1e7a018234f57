"""The owner of a partition lists its idempotent producers."""

from trio.testing import MockClock

from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import PartitionProducers, ProducersQuery, ProducersRequest
from tests.support.storage.cluster import cluster
from tests.support.storage.harness import Caller, World, batch
from tests.support.storage.sequences import numbered


async def listed_producers(caller: Caller, ref: PartitionRef) -> PartitionProducers:
    request = ProducersRequest(queries=[ProducersQuery(partition=ref)])
    (result,) = (await caller.storage.producers(request, timeout=60)).results
    return result


def _sequences(listed_producers: PartitionProducers) -> list[tuple[int, int, int]]:
    return [(known.producer_id, known.epoch, known.last_sequence) for known in listed_producers.producers]


async def test_each_owner_lists_producers_with_their_last_sequence(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1") as moving:
        ref = await moving.world.topic(moving.instances[0].catalog, partitions=1)
        for sent in (batch(b"x"), numbered(0, 3), numbered(3, 2), numbered(0, 1, producer_id=9, epoch=4)):
            await moving.append_durably(ref, sent)
        former = moving.assigned(ref)
        before = await listed_producers(former.caller, ref)
        assert before.status == Status.OK
        assert _sequences(before) == [(7, 0, 4), (9, 4, 0)]
        await moving.start("b:1")
        await former.stop()
        after = await listed_producers(moving.assigned(ref).caller, ref)
        assert _sequences(after) == [(7, 0, 4), (9, 4, 0)]


async def test_producers_of_a_partition_that_does_not_exist_are_refused(autojump_clock: MockClock) -> None:
    async with World().service() as (caller, _):
        for index in (0, -1, 2**31 - 1, -(2**31)):
            refused = await listed_producers(caller, PartitionRef(topic="gone", topic_id=bytes(16), partition=index))
            assert refused.status == Status.UNKNOWN_TOPIC
            assert not refused.producers
