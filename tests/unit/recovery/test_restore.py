"""Restored metadata: the storage service loses no acked record and continues above all earlier epochs and offsets."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.catalog.topic_object import parse_topic_object
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Delete, KeyValue, Put
from kafscale.metadata.memory import MemoryMetadataStore, lost_answer, no_answer
from kafscale.metadata.quotas import EntityQuotas, QuotaCatalog
from kafscale.metadata.users import User
from kafscale.objects.memory import Call, Fault
from kafscale.security.quotas import Entity
from kafscale.segment.format import SegmentHeader
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.groups_pb2 import Group, GroupOffset, GroupShard
from kafscale.v1.metadata_pb2 import EpochHistory, ProducerIds
from kafscale_tools.recovery.apply import NotEmpty
from kafscale_tools.recovery.backups import NotThisCluster
from kafscale_tools.recovery.rebuild import EPOCH_STEP
from kafscale_tools.recovery.restore import Undecided
from tests.support.storage.harness import NAMESPACE, World, batch, siblings, state_key
from tests.support.storage.sequences import flushed, numbers, send
from tests.support.storage.sinking import commit, sink_record, stage_keys, staged
from tests.unit.recovery.restoring import acked, backed_up, planned, prepared, restored, state_of

GROUP = paths.GroupKeys(NAMESPACE, "readers")


@pytest.mark.parametrize("snapshot", [False, True])
async def test_all_acked_records_remain_and_epochs_continue_above(autojump_clock: MockClock, snapshot: bool) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        first, second, third = siblings(await world.topic(catalog, configs={"retention.ms": "-1"}), 3)
        await acked(caller, first, b"0", b"1")
        await trio.sleep(10)
    if snapshot:
        await backed_up(world)
    async with world.service(graceful=False) as (caller, _):
        await acked(caller, first, b"2", b"3")
        await acked(caller, second, b"x")
        before = [await state_of(world, ref) for ref in (first, second)]
    rebuilt = await restored(world)
    assert not rebuilt.damaged
    after = [await state_of(world, ref) for ref in (first, second, third)]
    assert {state.epoch for state in after} == {rebuilt.epoch}
    assert rebuilt.epoch > max(state.epoch for state in before)
    assert [(state.log_start, state.high_watermark) for state in after] == [(0, 4), (0, 1), (0, 0)]
    assert [state.last_segment for state in after[:2]] == [state.last_segment for state in before]
    async with world.service() as (caller, catalog):
        topic = catalog.view.live("orders")
        assert topic is not None
        assert (topic.id, dict(topic.configs)) == (first.topic_id, {"retention.ms": "-1"})
        assert await caller.read_all(first) == [b"0", b"1", b"2", b"3"]
        appended = await caller.append(first, batch(b"4"))
        assert (appended.base_offset, appended.epoch) == (4, rebuilt.epoch + 1)
        assert await caller.durable(appended)
        assert await caller.read_all(first) == [b"0", b"1", b"2", b"3", b"4"]
        assert [await caller.read_all(ref) for ref in (second, third)] == [[b"x"], []]
        await trio.sleep(10)
        stored = parse_topic_object((await world.objects.get(paths.topic_object_key(NAMESPACE, "orders"))).body)
        assert stored.metadata_revision <= (await world.metadata.read_prefix("")).revision
        made = await world.topic(catalog, "later")
        assert (await caller.append(made, batch(b"0"))).epoch > rebuilt.epoch


async def test_a_second_restore_has_the_same_result(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(40))
    await backed_up(world)
    await restored(world)
    once = [(item.key, item.value) for item in (await world.metadata.read_prefix("")).items]
    await restored(world)
    assert [(item.key, item.value) for item in (await world.metadata.read_prefix("")).items] == once


async def test_uncommitted_records_of_a_dead_owner_do_not_replace_committed_ones(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"0")
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1000))
        for value in (b"lost 1", b"lost 2"):
            await caller.append(ref, batch(value))
            await trio.sleep(1)
    world.metadata.faults.clear()
    await trio.sleep(60)
    async with world.service(graceful=False) as (caller, _):
        await acked(caller, ref, b"1")
    left = SegmentHeader.parse((await world.objects.get(paths.segment_key(NAMESPACE, "orders", 0, 2))).body)
    assert left.epoch == 1
    rebuilt = await restored(world)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0", b"1"]
        await acked(caller, ref, b"2")
        assert await caller.read_all(ref) == [b"0", b"1", b"2"]
    assert rebuilt.topics[0].logs[0].chain.holes == ()


async def test_a_topic_that_grew_after_its_object_was_stored_has_all_partitions(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await trio.sleep(10)
        world.objects.plan = lambda call: Fault(error=Unavailable("no")) if "~topics" in call.key else None
        await catalog.grow(ref.topic_id, 3)
        last = siblings(ref, 3)[2]
        await acked(caller, last, b"x")
    world.objects.plan = None
    await restored(world)
    async with world.service() as (caller, catalog):
        assert catalog.view.by_name["orders"].partitions == 3
        assert await caller.read_all(last) == [b"x"]


async def test_segments_without_a_topic_object_need_a_decision_of_the_operator(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        world.objects.plan = lambda call: Fault(error=Unavailable("no")) if "~topics" in call.key else None
        ref = await world.topic(catalog)
        await acked(caller, ref, b"0")
    world.objects.plan = None
    with pytest.raises(Undecided, match="orders"):
        await restored(world)
    assert (await planned(world, ignore=["orders"])).topics == []
    await restored(world, adopt=["orders"])
    async with world.service() as (caller, catalog):
        made = catalog.view.by_name["orders"]
        adopted = PartitionRef(topic="orders", topic_id=made.id, partition=0)
        assert await caller.read_all(adopted) == [b"0"]


async def test_retention_and_record_deletions_are_not_undone(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"0", b"1")
        assert await caller.durable(await caller.append(ref, batch(b"2", b"3", b"4")))
        assert (await caller.delete_records(ref, 3)).status == Status.OK
        await trio.sleep(30)
    rebuilt = await restored(world)
    assert rebuilt.topics[0].logs[0].chain.start == 3
    async with world.service() as (caller, _):
        assert (await caller.fetch(ref, 2)).status == Status.OFFSET_OUT_OF_RANGE
        assert (await state_of(world, ref)).high_watermark == 5


async def test_a_missing_object_in_the_middle_is_reported_and_everything_else_is_restored(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(20))
    await world.objects.delete_many([paths.segment_key(NAMESPACE, "orders", 0, 5)])
    rebuilt = await restored(world)
    assert rebuilt.damaged == ["orders-0: objects of offsets 5 to 5 are missing"]
    async with world.service() as (caller, _):
        assert (await caller.fetch(ref, 5)).status == Status.DAMAGED
        assert await caller.read_all(ref, 6) == numbers(20)[6:]


@pytest.mark.parametrize("bad", [18, 19])
async def test_the_log_continues_after_a_damaged_object_near_its_end(autojump_clock: MockClock, bad: int) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(20))
    key = paths.segment_key(NAMESPACE, "orders", 0, bad)
    there = await world.objects.get(key)
    await world.objects.replace_if_match(key, b"?" + there.body[1:-1] + b"?", there.etag)
    rebuilt = await restored(world)
    assert f"object {key} is unreadable" in rebuilt.damaged
    async with world.service() as (caller, _):
        assert (await caller.fetch(ref, bad)).status == Status.DAMAGED
        assert await caller.read_all(ref, bad + 1) == numbers(20)[bad + 1 :]
    now = await world.objects.get(key)
    await world.objects.replace_if_match(key, there.body, now.etag)
    async with world.service() as (caller, _):
        await acked(caller, ref, b"later")
        assert await caller.read_all(ref) == [*numbers(20), b"later"]


async def test_repeated_batches_of_producers_are_recognized(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await flushed(caller, ref, range(40))
    rebuilt = await restored(world)
    log = rebuilt.topics[0].logs[0]
    assert log.producer_snapshot
    assert 16 <= log.producers_from < 40
    async with world.service() as (caller, _):
        again = await send(caller, ref, 39)
        assert again.base_offset == 39
        assert await caller.durable(again)
        await flushed(caller, ref, range(40, 42))
        assert await caller.read_all(ref) == numbers(42)


async def test_producer_ids_are_never_assigned_again(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (_, catalog):
        await world.topic(catalog)
        await trio.sleep(10)
    key = paths.producer_ids_key(NAMESPACE)
    given = (world.now_ms << 20) + 5
    await world.metadata.txn([], [Put(key, ProducerIds(format=1, next=given).SerializeToString())])
    await backed_up(world)
    await restored(world)
    item = await world.metadata.get(key)
    assert item is not None
    assert ProducerIds.FromString(item.value).next == given
    world.now_ms += 1000
    await restored(world, newest=False)
    item = await world.metadata.get(key)
    assert item is not None
    assert ProducerIds.FromString(item.value).next > given


async def test_users_and_quotas_are_those_of_the_snapshot(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (_, catalog):
        await world.topic(catalog)
        await trio.sleep(10)
    entity = Entity.of({"user": "ann b", "client-id": None})
    stored = {
        paths.user_key(NAMESPACE, "ann b"): User("ann b", {}).value(),
        paths.quota_key(NAMESPACE, entity.parts): EntityQuotas(entity, {"producer_byte_rate": 1.5}).value(),
    }
    await world.metadata.txn([], [Put(key, value) for key, value in stored.items()])
    await backed_up(world)
    await world.metadata.txn([], [Delete(key) for key in stored])
    await restored(world)
    for key, value in stored.items():
        item = await world.metadata.get(key)
        assert item is not None
        assert item.value == value
    quotas = QuotaCatalog(world.metadata, NAMESPACE)
    async with trio.open_nursery() as nursery:
        await nursery.start(quotas.run)
        nursery.cancel_scope.cancel()
    assert quotas.quotas == {entity: {"producer_byte_rate": 1.5}}


async def test_groups_keep_their_offsets_and_have_no_members(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (_, catalog):
        ref = await world.topic(catalog)
        await trio.sleep(10)
    offset = GroupOffset(format=1, offset=7, leader_epoch=-1, topic_id=ref.topic_id).SerializeToString()
    member = Group.MemberRef(member_id="m", version="3-9")
    header = Group(format=1, generation=3, protocol_type="consumer", members=[member], assignments_version="3-9")
    shard = paths.group_shard_key(NAMESPACE, paths.group_shard("readers"))
    await world.metadata.txn(
        [],
        [
            Put(GROUP.header, header.SerializeToString()),
            Put(GROUP.member("m", "3-9"), b"anything"),
            Put(GROUP.assignments("3-9", 0), b"anything"),
            Put(GROUP.offset("orders", 0), offset),
            Put(shard, GroupShard(format=1, epoch=4, owner="gone").SerializeToString()),
        ],
    )
    await backed_up(world)
    await restored(world)
    kept = {item.key: item.value for item in (await world.metadata.read_prefix(GROUP.prefix)).items}
    assert kept.keys() == {GROUP.header, GROUP.offset("orders", 0)}
    assert kept[GROUP.offset("orders", 0)] == offset
    expected = Group(format=1, generation=3, protocol_type="consumer", changed_ms=world.now_ms)
    assert Group.FromString(kept[GROUP.header]) == expected
    item = await world.metadata.get(shard)
    assert item is not None
    assert GroupShard.FromString(item.value) == GroupShard(format=1, epoch=4)


async def test_metadata_that_is_in_use_or_belongs_to_another_cluster_is_not_replaced(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (_, catalog):
        await world.topic(catalog)
        await backed_up(world)
        with pytest.raises(NotEmpty, match="registered"):
            await planned(world)
    before = await world.metadata.read_prefix("")
    with pytest.raises(NotEmpty, match="--overwrite"):
        await planned(world)
    mark = paths.cluster_mark_key(NAMESPACE)
    there = await world.objects.get(mark)
    await world.objects.replace_if_match(mark, b"another", there.etag)
    old, world.metadata = world.metadata, MemoryMetadataStore()
    with pytest.raises(NotThisCluster, match="another"):
        await planned(world)
    await world.objects.delete_many([mark])
    with pytest.raises(NotThisCluster, match="KAFSCALE_S3_NAMESPACE"):
        await planned(world)
    assert (await world.metadata.read_prefix("")).items == ()
    assert (await old.read_prefix("")).items == before.items


async def test_metadata_created_while_the_operator_was_asked_is_not_replaced(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    async with world.service() as (_, catalog):
        await world.topic(catalog)
        await trio.sleep(10)
    restore, rebuilt = await prepared(world, overwrite=True)
    async with world.service():
        with pytest.raises(NotEmpty, match="registered"):
            await restore.write(rebuilt)
    key = paths.cluster_key(NAMESPACE)
    get, there = world.metadata.get, await world.metadata.get(key)
    assert there is not None

    async def changed_after(asked: str) -> KeyValue | None:
        found = await get(asked)
        monkeypatch.undo()
        await world.metadata.txn([], [Put(asked, there.value)])
        return found

    monkeypatch.setattr(world.metadata, "get", changed_after)
    with pytest.raises(NotEmpty, match="changed"):
        await restore.write(rebuilt)
    assert await world.metadata.get(paths.topic_key(NAMESPACE, "orders")) is not None
    world.metadata.faults.append(lost_answer(key=key))
    await restore.write(rebuilt)
    world.metadata = MemoryMetadataStore()
    restore, rebuilt = await prepared(world)
    await world.metadata.txn([], [Put(key, there.value)])
    with pytest.raises(NotEmpty, match="--overwrite"):
        await restore.write(rebuilt)


async def test_an_interrupted_restore_has_no_effect_and_can_be_repeated(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=200)
        await acked(caller, ref, b"0")
        await trio.sleep(10)
    world.metadata = MemoryMetadataStore()
    world.metadata.faults.append(no_answer("txn", key=paths.partition_states_prefix(NAMESPACE), times=1000))
    restore, rebuilt = await prepared(world)
    with pytest.raises(Unavailable):
        await restore.write(rebuilt)
    assert await world.metadata.get(paths.cluster_key(NAMESPACE)) is None
    world.metadata.faults.clear()
    await world.metadata.txn([], [Put(f"{paths.topics_prefix(NAMESPACE)}half", b"done")])
    restore, rebuilt = await prepared(world)
    await restore.write(rebuilt)
    async with world.service() as (caller, catalog):
        assert set(catalog.view.by_name) == {"orders"}
        assert await caller.read_all(ref) == [b"0"]


async def test_a_sinks_epoch_in_some_logs_is_applied_to_all_of_them_once(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service(graceful=False) as (caller, catalog):
        first, second, _ = siblings(await world.topic(catalog, configs={"compression.type": "zstd"}), 3)
        await acked(caller, first, b"0")
        await backed_up(world)
        text = [b"abc" * 100 + b"%d" % number for number in range(6)]
        stages = [
            await staged(caller, first, batch(*text[:2]), batch(*text[2:4])),
            await staged(caller, second, batch(*text[4:])),
        ]

        def one_log(call: Call) -> Fault | None:
            return Fault(error=Unavailable("no")) if "/orders/1/" in call.key and call.kind != "list_from" else None

        world.objects.plan = one_log
        reply = await commit(caller, *stages, wait_ms=5_000)
        assert (reply.status, reply.applied) == (Status.OK, False)
        assert [ref.partition for ref in (await sink_record(world)).remaining] == [1]
    world.objects.plan = None
    await restored(world)
    record = await sink_record(world)
    assert (record.epoch, [ref.partition for ref in record.remaining]) == (0, [1])
    async with world.service() as (caller, _):
        again = await commit(caller, *stages)
        assert (again.status, again.already, again.applied) == (Status.OK, True, True)
        assert [await caller.read_all(ref) for ref in (first, second)] == [[b"0", *text[:4]], text[4:]]
        await trio.sleep(10)
        assert await stage_keys(world) == []
    # An epoch that was applied everywhere meanwhile is not awaited, although it is pending in the snapshot.
    await restored(world)
    assert not (await sink_record(world)).remaining


@pytest.mark.parametrize("damaged", ["stage", "segment"])
async def test_damaged_stages_of_a_sink_are_reported_and_everything_else_is_restored(
    autojump_clock: MockClock, damaged: str
) -> None:
    world = World(intake=False)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        await acked(caller, ref, b"0")
        await backed_up(world)
        one = await staged(caller, ref, batch(b"1"))

        def no_log(call: Call) -> Fault | None:
            return Fault(error=Unavailable("no")) if "/orders/" in call.key and call.kind != "list_from" else None

        world.objects.plan = no_log
        assert not (await commit(caller, one, wait_ms=5_000)).applied
    world.objects.plan = None
    key = one.key if damaged == "stage" else paths.segment_key(NAMESPACE, "orders", 0, 0)
    there = await world.objects.get(key)
    middle = len(there.body) // 2
    broken = there.body[:middle] + bytes([there.body[middle] ^ 1]) + there.body[middle + 1 :]
    await world.objects.replace_if_match(key, broken, there.etag)
    rebuilt = await restored(world)
    assert [key in fault for fault in rebuilt.damaged] == [True]
    assert (await state_of(world, ref)).high_watermark == 1
    assert [left.partition for left in (await sink_record(world)).remaining] == [0]


async def test_the_history_has_the_epoch_of_every_segment(autojump_clock: MockClock) -> None:
    world = World()
    ref = None
    for value in (b"0", b"1", b"2"):
        async with world.service(graceful=False) as (caller, catalog):
            ref = ref or await world.topic(catalog)
            await acked(caller, ref, value)
        await trio.sleep(60)
    assert ref is not None
    rebuilt = await restored(world)
    item = await world.metadata.get(paths.epoch_history_key(NAMESPACE, "orders", 0))
    assert item is not None
    entries = [(entry.epoch, entry.first_offset) for entry in EpochHistory.FromString(item.value).entries]
    assert entries == [(1, 0), (2, 1), (3, 2), (3 + EPOCH_STEP, 3)]
    assert rebuilt.epoch == 3 + EPOCH_STEP
