"""Copies of a topic as it was at an earlier time."""

from kafscale.metadata.topics import TopicCatalog
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from kafscale.v1.common_pb2 import PartitionRef
from kafscale_tools.recovery.claim import CopiedLog
from kafscale_tools.recovery.point_in_time import PointInTime
from kafscale_tools.recovery.stores import Stores
from tests.support.storage.harness import NAMESPACE, Caller, World, inline

INTO = "orders-restored"


ALL = 2**62


MIB = 1024 * 1024


def copying(world: World, until_ms: int, topic: str = "orders", into: str = INTO) -> PointInTime:
    return PointInTime(
        Stores(world.metadata, world.objects, NAMESPACE, world.objects),
        topic=topic,
        until_ms=until_ms,
        into=into,
        parallel=2,
        segment_bytes=world.settings.segment_bytes,
        index_interval=100,
        decode_bytes=MIB,
        now_ms=world.now_ms,
        run_sync=inline,
    )


async def copied(world: World, until_ms: int, topic: str = "orders", into: str = INTO) -> list[CopiedLog]:
    copy = copying(world, until_ms, topic, into)
    logs = await copy.plan()
    done: list[int] = []
    made = await copy.copy(logs, done.append)
    assert sum(done) == sum(log.size for log in logs)
    return made


async def stored(caller: Caller, ref: PartitionRef, *batches: bytes) -> None:
    """Append batches, each in its own segment, and wait for their commits."""
    for each in batches:
        assert await caller.durable(await caller.append(ref, each), ref)


async def new_topic(catalog: TopicCatalog, partitions: int = 1, name: str = INTO) -> list[PartitionRef]:
    while (topic := catalog.view.live(name)) is None:
        await catalog.changed()
    return [PartitionRef(topic=name, topic_id=topic.id, partition=index) for index in range(partitions)]


def numbered(producer_id: int, sequence: int) -> bytes:
    records = [Record(0, 1, None, b"%d" % sequence, ())]
    return build_batch(records, base_offset=0, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def timed(*times: int, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch of records whose values are their times."""
    records = [Record(i, time, b"k", b"%d" % time, (("h", b"1"),)) for i, time in enumerate(times)]
    return build_batch(records, base_offset=0, codec=codec)
