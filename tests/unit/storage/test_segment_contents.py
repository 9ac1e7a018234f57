"""What is in a segment, for operators: page by page, and also if it is damaged."""

from typing import Any

import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import DescribeSegmentRequest, SegmentDescribed
from tests.support.storage.harness import NAMESPACE, Caller, World, batch
from tests.unit.storage.test_compaction import a_world, compacted, write_log


async def _described(caller: Caller, ref: PartitionRef, offset: int, **page: Any) -> SegmentDescribed:
    request = DescribeSegmentRequest(partition=ref, offset=offset, **page)
    return await caller.storage.describe_segment(request, timeout=60)


async def _replace(world: World, key: str, change: Any) -> None:
    body = bytearray((await world.objects.get(key)).body)
    await world.objects.delete_many([key])
    await world.objects.put_if_absent(key, bytes(change(body)))


async def test_a_segment_is_described_with_its_batches_in_pages_and_its_index(autojump_clock: MockClock) -> None:
    async with (world := World(indexing=True)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        batches = [batch(b"%d" % number, b"x", b"y", timestamp=1000 + number) for number in range(5)]
        appended = await caller.append(ref, b"".join(batches))
        await caller.flush(ref)
        assert await caller.durable(appended)
        await trio.sleep(1)
        contents = (await _described(caller, ref, 7)).contents
        assert contents.object == paths.segment_key(NAMESPACE, ref.topic, ref.partition, 0)
        assert (contents.header.base_offset, contents.header.messages, contents.footer.last_offset) == (0, 15, 14)
        assert contents.footer.crc_correct
        assert (contents.rewritten, contents.batch_count, list(contents.faults)) == (False, 5, [])
        seen = [(each.base_offset, each.last_offset, each.records, each.max_timestamp) for each in contents.batches]
        assert seen == [(3 * n, 3 * n + 2, 3, 1000 + n) for n in range(5)]
        assert {(each.producer_id, each.codec) for each in contents.batches} == {(-1, "none")}
        assert contents.has_index
        assert [each.offset for each in contents.index_entries][:1] == [0]
        page = (await _described(caller, ref, 7, first_batch=1, limit=2)).contents
        assert [each.base_offset for each in page.batches] == [3, 6]
        assert (page.first_batch, page.batch_count) == (1, 5)
        assert list((await _described(caller, ref, 7, first_batch=99)).contents.batches) == []
        assert (await _described(caller, ref, 15)).status == Status.INVALID
        await caller.delete_records(ref, 4)
        assert (await _described(caller, ref, 0)).contents.header.base_offset == 0, "it holds the log start"
        assert (await _described(caller, ref, 0, first_batch=-1)).status == Status.INVALID


async def test_damage_is_described_and_what_is_before_it_is_shown(autojump_clock: MockClock) -> None:
    async with (world := World(indexing=True)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        appended = await caller.append(ref, b"".join(batch(b"%d" % number) for number in range(3)))
        await caller.flush(ref)
        assert await caller.durable(appended)
        await trio.sleep(1)
    key = paths.segment_key(NAMESPACE, ref.topic, ref.partition, 0)
    whole = (await world.objects.get(key)).body
    async with world.service() as (caller, _):
        await _replace(world, key, lambda body: body[:-30])
        cut = (await _described(caller, ref, 0)).contents
        assert (len(cut.batches), cut.HasField("footer")) == (2, False)
        assert "it ends with" in cut.faults[0]
        await _replace(world, key, lambda _: b"rubbish" * 20)
        rubbish = (await _described(caller, ref, 0)).contents
        assert (rubbish.HasField("header"), len(rubbish.batches)) == (False, 0)
        assert "not a segment" in rubbish.faults[0]
        await _replace(world, key, lambda _: whole)
        index = paths.index_key(NAMESPACE, ref.topic, ref.partition, 0)
        await _replace(world, index, lambda body: body[:-1])
        broken = (await _described(caller, ref, 0)).contents
        assert (len(broken.batches), broken.has_index, len(broken.faults)) == (3, True, 1)
        assert broken.faults[0].startswith(index)
        await world.objects.delete_many([index])
        assert list((await _described(caller, ref, 0)).contents.faults) == [f"{index}: missing"]
        await world.objects.delete_many([key])
        assert (await _described(caller, ref, 0)).status == Status.DAMAGED


async def test_a_rewritten_object_is_described_too(autojump_clock: MockClock) -> None:
    async with compacted(world := a_world()) as (caller, _, ref):
        await write_log(caller, ref)
        await trio.sleep(60)
        contents = (await _described(caller, ref, 0)).contents
        assert contents.rewritten
        assert contents.object.startswith(f"{NAMESPACE}/~rewritten/")
        assert list(contents.faults) == []
        assert contents.index_entry_count >= len(contents.index_entries) >= 1
        await _replace(world, contents.object, lambda body: body[:-20] + b"x" + body[-19:])
        assert len((await _described(caller, ref, 0)).contents.faults) == 1
