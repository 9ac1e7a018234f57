"""The counters of an indexer."""

from kafscale.v1.indexer_pb2 import SegmentBatches, WriteIndexesRequest
from services.indexer.monitoring import families
from tests.unit.indexer.conftest import World


async def test_indexes_and_whole_segments_are_counted(world: World) -> None:
    service = world.service
    built = await world.add([1, 2, 3], [4, 5, 6])
    batches = SegmentBatches(segment=world.ref(0), offsets=built.offsets, positions=built.positions)
    await service.write_indexes(WriteIndexesRequest(segments=[batches]))
    await service.rebuild(world.ref(0))
    await world.store.delete_many([world.index_key(0)])
    await service.rebuild(world.ref(0))
    assert service.counters.indexes == {"built": 1, "intact": 1, "rebuilt": 1}
    assert (service.counters.segments_read, service.counters.read_bytes) == (2, 2 * len(built.data))
    shown = {family.name: family.read() for family in families(service.counters)}
    assert shown["kafscale_indexer_segments_read_total"] == {(): 2}
    assert shown["kafscale_indexer_reads"] == shown["kafscale_indexer_reads_waiting"] == {(): 0}
