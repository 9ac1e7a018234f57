"""Any indexer can store a catalog page, and stores it once, whatever became of earlier attempts."""

import pytest

from kafscale import paths
from kafscale.catalog.page import build_page, describe
from kafscale.errors import CorruptData, Unavailable
from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.indexer_pb2 import WriteCatalogPageRequest
from tests.support.samples.segments import EPOCH
from tests.unit.indexer.conftest import World

REF = PartitionRef(topic="t", topic_id=bytes(16), partition=0)
KEY = paths.catalog_page_key("ns", "t", 0, 0, EPOCH)


async def _request(world: World) -> WriteCatalogPageRequest:
    built = [await world.add([10, 20]), await world.add([30, 40])]
    segments = [describe(one.data, one.positions, one.next_offset) for one in built]
    return WriteCatalogPageRequest(partition=REF, epoch=EPOCH, segments=segments)


async def test_the_key_of_a_page_has_its_first_base_and_the_owners_epoch(world: World) -> None:
    request = await _request(world)

    assert (await world.service.write_catalog_page(request)).key == KEY
    assert (await world.store.get(KEY)).body == build_page(REF, EPOCH, request.segments)


async def test_an_existing_page_is_kept_and_a_damaged_one_is_replaced(world: World) -> None:
    request = await _request(world)
    world.store.plan = lambda call: (
        Fault(error=Unavailable("lost"), applied="before") if call.kind == "put_if_absent" else None
    )
    with pytest.raises(Unavailable):
        await world.service.write_catalog_page(request)
    world.store.plan = None
    await world.service.write_catalog_page(request)
    assert world.store.count("replace_if_match") == 0

    await world.overwrite(KEY, b"torn")
    await world.service.write_catalog_page(request)
    assert (await world.store.get(KEY)).body == build_page(REF, EPOCH, request.segments)


async def test_a_request_that_is_not_a_page_is_refused(world: World) -> None:
    request = await _request(world)
    del request.segments[:]
    with pytest.raises(CorruptData, match="0 segments"):
        await world.service.write_catalog_page(request)
    assert world.store.count("put_if_absent") == 4


async def test_a_lookup_by_time_returns_the_times_of_the_segments_it_read(world: World) -> None:
    for times in ([10, 20], [40, 30], [50], [60], [70]):
        await world.add(times)
    # The first one alone, then two at a time.
    assert list((await world.locate(35)).newest) == [20, 40, 50, -2, -2]
    assert list((await world.locate(100)).newest) == [20, 40, 50, 60, 70]
    assert list((await world.locate(100, epochs=[EPOCH, 9, EPOCH, EPOCH, EPOCH])).newest) == [20, -2, 50, 60, 70]
