"""The state of a topic at an earlier time is copied into a new one, which storage services read and write normally."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.catalog.page import parse_page
from kafscale.errors import CorruptData, Unavailable
from kafscale.metadata.memory import MemoryMetadataStore, no_answer
from kafscale.metadata.topic_values import InvalidTopicName, TopicExists
from kafscale.objects.memory import Call, Fault
from kafscale.records.batch import peek, verify_crc
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch, read_records
from kafscale.segment.format import HEADER_SIZE
from kafscale.segment.index import parse_index
from kafscale.segment.reader import parse_segment
from kafscale.segment.verify import verify_index
from kafscale.segment.writer import PREFIX_SIZE, build_segment
from kafscale.v1.common_pb2 import Status
from kafscale_tools.recovery.claim import LeftOver, NameTaken
from kafscale_tools.recovery.cut import CannotCopy, kept_until
from kafscale_tools.recovery.point_in_time import NoSuchTopic, NothingLeft
from kafscale_tools.recovery.restore import Restore
from kafscale_tools.recovery.stores import Stores
from tests.support.storage.harness import NAMESPACE, World, siblings
from tests.unit.recovery.copying import ALL, INTO, MIB, copied, copying, new_topic, numbered, stored, timed


@pytest.mark.parametrize("codec", list(Codec))
def test_a_truncated_batch_keeps_everything_except_its_end(codec: Codec) -> None:
    records = [Record(40 + i, 100 + i, None, b"v" * 50, (("h", b"1"),)) for i in range(10)]
    whole = build_batch(
        records, base_offset=40, codec=codec, leader_epoch=3, producer_id=7, producer_epoch=2, base_sequence=5
    )
    source = parse_segment(build_segment([(whole[:PREFIX_SIZE], whole[PREFIX_SIZE:])], epoch=3, created_ms=9).data)
    kept = kept_until(source, until_ms=103, log_start=0, epoch=8, max_bytes=MIB)
    assert kept.segment is not None
    found = parse_segment(kept.segment.data, check_batches=True)
    assert (kept.end, kept.whole, found.next_offset, found.header.epoch) == (44, False, 44, 8)
    cut = kept.segment.data[found.positions[0] : found.ends[0]]
    header = peek(cut)
    verify_crc(cut, 0, header)
    assert list(read_records(cut, max_bytes=MIB)) == records[:4]
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 7, 2, 5)
    assert (header.base_timestamp, header.max_timestamp, header.leader_epoch) == (100, 103, 8)
    all_of_it = kept_until(source, until_ms=109, log_start=0, epoch=8, max_bytes=MIB)
    assert all_of_it.segment is not None
    assert all_of_it.segment.data[found.positions[0] + PREFIX_SIZE :][: len(whole) - PREFIX_SIZE] == whole[PREFIX_SIZE:]
    # A batch too large to decode is judged by its header.
    assert kept_until(source, until_ms=103, log_start=0, epoch=8, max_bytes=100).end == 40


@pytest.mark.parametrize("log_start", [0, 42, 47])
def test_a_compacted_batch_may_have_no_record_before_the_cut(log_start: int) -> None:
    """KafScale 1 accepted such batches, whose first record is not at the first offset."""
    batches = [
        build_batch([Record(40, 100, None, b"v", ())], base_offset=40, leader_epoch=0),
        build_batch([Record(46, 104, None, b"v", ()), Record(49, 200, None, b"v", ())], base_offset=41, leader_epoch=0),
    ]
    pieces = [(each[:PREFIX_SIZE], each[PREFIX_SIZE:]) for each in batches]
    both, second = (parse_segment(build_segment(some, epoch=0, created_ms=9).data) for some in (pieces, pieces[1:]))
    for until_ms in (103, 104, 150):
        kept = kept_until(second, until_ms=until_ms, log_start=log_start, epoch=8, max_bytes=MIB)
        some = until_ms >= 104 and log_start < 47
        assert (kept.end, kept.whole, kept.segment is None) == (47 if some else max(41, log_start), False, not some)
    kept = kept_until(both, until_ms=103, log_start=log_start, epoch=8, max_bytes=MIB)
    assert (kept.end, kept.segment is None) == ((41, False) if log_start == 0 else (log_start, True))


async def test_each_partition_ends_before_its_first_later_record(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        first, second, third, fourth = siblings(
            await world.topic(catalog, partitions=4, configs={"retention.ms": "-1"}), 4
        )
        await stored(caller, first, timed(10, 20), timed(30, 40, 50, codec=Codec.ZSTD), timed(25, 60))
        await stored(caller, second, timed(10), timed(90), timed(20))
        await stored(caller, third, timed(70))
        made = await copied(world, 40)
        assert [(log.start, log.end, log.left_out) for log in made] == [(0, 4, 3), (0, 1, 2), (0, 0, 1), (0, 0, 0)]
        await trio.sleep(10)
        refs = await new_topic(catalog, 4)
        topic = catalog.view.live(INTO)
        assert topic is not None
        assert (topic.partitions, dict(topic.configs)) == (4, {"retention.ms": "-1"})
        assert [await caller.read_all(ref) for ref in refs] == [[b"10", b"20", b"30", b"40"], [b"10"], [], []]
        for ref in refs:
            await stored(caller, ref, timed(1000))
        await stored(caller, refs[0], timed(1))
        assert await caller.read_all(refs[0]) == [b"10", b"20", b"30", b"40", b"1000", b"1"]
        assert await caller.read_all(first) == [b"10", b"20", b"30", b"40", b"50", b"25", b"60"]
        assert await caller.read_all(fourth) == []
    for base in (0, 2):
        segment = parse_segment((await world.objects.get(paths.segment_key(NAMESPACE, INTO, 0, base))).body)
        index = (await world.objects.get(paths.index_key(NAMESPACE, INTO, 0, base))).body
        assert verify_index(parse_index(index), segment) == []
    page = paths.catalog_page_key(NAMESPACE, INTO, 0, 0, segment.header.epoch)
    assert [each.next_offset for each in parse_page((await world.objects.get(page)).body).segments] == [2, 4]


async def test_another_owner_can_take_the_new_topic_over(autojump_clock: MockClock) -> None:
    """After a kill the bucket has everything it needs."""
    world = World(intake=False)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await stored(caller, ref, *(timed(time) for time in range(20)))
        await copied(world, 9)
    for _ in range(2):
        async with world.service(graceful=False) as (caller, catalog):
            (restored,) = await new_topic(catalog)
            assert await caller.read_all(restored) == [b"%d" % time for time in range(10)]
        world.metadata = MemoryMetadataStore()
        restore = Restore(
            Stores(world.metadata, world.objects, NAMESPACE, world.objects), parallel=4, now_ms=world.now_ms
        )
        rebuilt = await restore.plan(
            snapshot=None, newest=False, adopt=(), ignore=(), overwrite=False, report=lambda _: None
        )
        assert rebuilt.damaged == []
        await restore.write(rebuilt)
        await trio.sleep(60)


async def test_producers_of_the_old_topic_and_new_ones_can_write_to_the_new_topic(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await stored(caller, ref, *(numbered(5, sequence) for sequence in range(3)))
        await copied(world, ALL)
        (restored,) = await new_topic(catalog)
        for producer in (5, 6):
            await stored(caller, restored, numbered(producer, 0), numbered(producer, 1))
            # A repeated batch is in the log once.
            assert (await caller.append(restored, numbered(producer, 1))).status == Status.OK
        await stored(caller, ref, numbered(5, 3))
        assert await caller.read_all(restored) == [b"0", b"1", b"2", b"0", b"1", b"0", b"1"]


async def test_records_deleted_by_retention_are_not_copied(
    autojump_clock: MockClock,
) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await stored(caller, ref, *(timed(time, time) for time in range(6)))
        await caller.delete_records(ref, 3)
        await trio.sleep(10)
        (made,) = await copied(world, 4)
        assert (made.start, made.end) == (3, 10)
        (restored,) = await new_topic(catalog)
        # The batch with the log start is copied completely.
        assert await caller.read_all(restored, offset=3) == [b"1", b"1", b"2", b"2", b"3", b"3", b"4", b"4"]
        gone = copying(world, 5, into="again")
        logs = await gone.plan()
        await caller.delete_records(ref, 8)
        await trio.sleep(10)
        (again,) = await gone.copy(logs, lambda _: None)
        assert (again.start, again.end) == (8, 12)
        (restored,) = await new_topic(catalog, name="again")
        assert await caller.read_all(restored, offset=8) == [b"4", b"4", b"5", b"5"]


async def test_a_failed_copy_deletes_what_it_stored(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=5, intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await stored(caller, ref, *(timed(time) for time in range(30)))

        def fault(call: Call) -> Fault | None:
            late = "segment-00000000000000000025" in call.key and INTO in call.key
            return Fault(error=Unavailable("no"), applied="later") if late else None

        world.objects.plan = fault
        with pytest.raises(Unavailable):
            await copied(world, ALL)
        assert await left_behind(world)
        world.objects.plan = None
        with pytest.raises(TopicExists, match="being deleted"):
            await copied(world, ALL)
        await trio.sleep(4)
        world.objects.land_stray()
        await trio.sleep(10)
        assert await left_behind(world) == []
        (made,) = await copied(world, 9)
        assert (made.start, made.end) == (0, 10)
        (restored,) = await new_topic(catalog)
        assert await caller.read_all(restored) == [b"%d" % time for time in range(10)]
        await stored(caller, restored, timed(100), timed(101))
        assert (await caller.read_all(restored))[9:] == [b"9", b"100", b"101"]


async def test_an_interrupted_copy_deletes_what_it_stored(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await stored(caller, ref, timed(1), timed(2))
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if "~producers/" + INTO in call.key else None
        with trio.move_on_after(5) as interrupted:
            await copied(world, ALL)
        assert interrupted.cancelled_caught
        world.objects.plan = None
        await trio.sleep(10)
        assert await left_behind(world) == []


async def left_behind(world: World) -> list[str]:
    """Return everything in the stores under the new name."""
    objects = [info.key for info in await world.objects.list_from("")]
    keys = [item.key for item in (await world.metadata.read_prefix("")).items]
    return [key for key in (*objects, *keys) if INTO in key]


async def killed(world: World, late: str) -> None:
    """Run a copy that is killed when it reaches ``late``, without cleanup."""
    copy = copying(world, ALL)
    logs = await copy.plan()
    world.objects.plan = lambda call: Fault(error=Unavailable("no")) if late in call.key else None

    def begun(_: int) -> None:
        world.metadata.faults.append(no_answer("txn", key=paths.topic_key(NAMESPACE, INTO), times=1000))

    with pytest.raises(Unavailable):
        await copy.copy(logs, begun)
    world.objects.plan = None
    world.metadata.faults.clear()


async def test_a_topic_created_after_a_killed_copy_has_no_records_of_it(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await stored(caller, ref, *(timed(time) for time in range(12)))
        # Everything except the last step has been done.
        await killed(world, "~producers/" + INTO)
        with pytest.raises(LeftOver, match=f"below {NAMESPACE}/{INTO}/ belong to no topic"):
            await copied(world, ALL)
        other = await world.topic(catalog, INTO, partitions=1)
        await stored(caller, other, timed(7), timed(8))
        assert await caller.read_all(other) == [b"7", b"8"]
        with pytest.raises(TopicExists):
            await copied(world, ALL)


async def test_the_first_of_two_concurrent_copies_wins(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await stored(caller, ref, timed(1), timed(2))
        second = copying(world, 1)
        logs = await second.plan()
        hold = trio.Event()
        world.objects.plan = lambda call: Fault(hold=hold) if "~producers/" + INTO in call.key else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copied, world, ALL)
            await trio.sleep(1)
            with pytest.raises(NameTaken):
                await second.copy(logs, lambda _: None)
            hold.set()
        (restored,) = await new_topic(catalog)
        assert await caller.read_all(restored) == [b"1", b"2"]


@pytest.mark.parametrize("late", ["~producers/" + INTO, "segment-00000000000000000000.index"])
async def test_a_topic_created_meanwhile_loses_nothing_to_a_copy(autojump_clock: MockClock, late: str) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await stored(caller, ref, timed(*range(120)) * 3)
        hold, refused = trio.Event(), trio.Event()

        def fault(call: Call) -> Fault | None:
            return Fault(hold=hold) if late in call.key and INTO in call.key and not hold.is_set() else None

        async def copy() -> None:
            with pytest.raises(NameTaken):
                await copied(world, ALL)
            refused.set()

        world.objects.plan = fault
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy)
            await trio.sleep(1)
            world.objects.plan = None
            other = await world.topic(catalog, INTO, partitions=1)
            await stored(caller, other, timed(*range(150)) * 2)
            await trio.sleep(1)
            if "index" in late:
                hold.set()
                await refused.wait()
                key = paths.segment_key(NAMESPACE, INTO, 0, 0)
                segment = parse_segment((await world.objects.get(key)).body)
                index = (await world.objects.get(paths.index_key(NAMESPACE, INTO, 0, 0))).body
                assert verify_index(parse_index(index), segment) == []
                assert await caller.read_all(other) == [b"%d" % time for time in range(150)] * 2
            else:
                await catalog.mark_deleting(INTO)
                await catalog.wait_free(INTO)
                hold.set()
                await refused.wait()
                assert INTO not in catalog.view.by_name


async def test_impossible_copies_are_refused_and_change_nothing(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, "or.ders", partitions=1)
        await stored(caller, ref, timed(10, 20), timed(20), timed(30))
        for topic, into, error in (
            ("none", INTO, NoSuchTopic),
            ("or.ders", "or.ders", TopicExists),
            ("or.ders", "or_ders", InvalidTopicName),
            ("or.ders", "a/b", InvalidTopicName),
        ):
            with pytest.raises(error):
                await copied(world, ALL, topic, into)
        with pytest.raises(NothingLeft):
            await copied(world, 9, "or.ders")
        # The name is not claimed either.
        assert await left_behind(world) == []
        await world.topic(catalog, "wide", partitions=4097)
        with pytest.raises(CannotCopy, match="4097 partitions are too many for one metadata store transaction"):
            await copied(world, ALL, "wide")
        key = paths.segment_key(NAMESPACE, "or.ders", 0, 2)
        whole = (await world.objects.get(key)).body
        await world.objects.delete_many([key])
        with pytest.raises(CorruptData, match="the offsets before 3"):
            await copied(world, ALL, "or.ders")
        await trio.sleep(10)
        # A damaged header is no reason to leave a segment out.
        epoch_at = HEADER_SIZE - 1
        await world.objects.put_if_absent(key, whole[:epoch_at] + bytes([whole[epoch_at] ^ 1]) + whole[epoch_at + 1 :])
        with pytest.raises(CorruptData, match=r"segment of epoch"):
            await copied(world, ALL, "or.ders")
        await trio.sleep(10)
        assert set(catalog.view.by_name) == {"or.ders", "wide"}
        # Everything before the hole can be copied.
        await copied(world, 10, "or.ders")
        assert await caller.read_all((await new_topic(catalog))[0]) == [b"10"]
