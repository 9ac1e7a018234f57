"""etcd's members restarted, killed and paused under the store."""

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from kafscale.errors import Unavailable
from kafscale.metadata.etcd import EtcdMetadataStore, open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Compacted, Delete, Event, Put, Snapshot, Watch
from tests.servers.etcd import Etcd, running_etcd

_WRITERS = 8
_WRITES_A_KILL = 200


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Etcd]:
    with running_etcd(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Etcd]:
    with running_etcd(tmp_path, members=3) as etcd:
        yield etcd


@asynccontextmanager
async def _store(*endpoints: str, seconds: float = 30.0) -> AsyncIterator[EtcdMetadataStore]:
    """A store that asks the first endpoint first."""
    async with open_etcd(EtcdConfig(endpoints=endpoints, timeout_seconds=seconds), random=lambda: 0.0) as store:
        yield store


async def _put(store: EtcdMetadataStore, key: str, value: bytes) -> int:
    return (await store.txn([], [Put(key, value)])).revision


async def _values(watch: Watch, last: bytes) -> list[bytes]:
    """The values that are put, up to ``last``."""
    values: list[bytes] = []
    while last not in values:
        values += [event.value.value for event in await watch.next() if event.value]
    return values


async def test_data_survives_a_restart_and_a_watch_continues(one: Etcd) -> None:
    async with _store(*one.endpoints) as store:
        lease = await store.grant_lease(600)
        first = await store.txn([], [Put("w/a", b"1"), Put("w/leased", b"2", lease)])
        async with store.watch("w/", first.revision) as watch:
            assert len(await watch.next()) == 2
            before = await store.read_prefix("")
            await trio.to_thread.run_sync(one.members[0].restart)
            assert await store.read_prefix("") == before
            assert await store.keep_alive(lease) == 600
            again = await _put(store, "w/a", b"3")
            assert [(event.key, event.revision) for event in await watch.next()] == [("w/a", again)]


async def test_a_watch_that_reconnects_after_a_compaction_always_raises_compacted(one: Etcd) -> None:
    async with _store(*one.endpoints) as store:
        first = await _put(store, "w/a", b"1")
        async with store.watch("w/", first) as watch:
            assert await _values(watch, b"1") == [b"1"]
            await trio.to_thread.run_sync(one.members[0].restart)
            missed, kept = [await _put(store, "w/a", b"%d" % number) for number in (2, 3)]
            await store.compact(kept)
            for _ in range(2):
                with pytest.raises(Compacted, match=str(kept)):
                    await watch.next()
        assert missed < kept


async def test_a_watch_that_reconnects_to_older_data_raises_compacted_and_its_follower_reads_all_again(
    one: Etcd, tmp_path: Path
) -> None:
    member, data, backup = one.members[0], tmp_path / "member0", tmp_path / "backup"
    seen: list[dict[str, bytes]] = []
    news = trio.Event()

    def show(values: dict[str, bytes]) -> None:
        nonlocal news
        seen.append(values)
        news.set()
        news = trio.Event()

    def reset(snapshot: Snapshot) -> None:
        show({item.key: item.value for item in snapshot.items})

    def apply(events: tuple[Event, ...]) -> None:
        show({**seen[-1], **{event.key: event.value.value for event in events if event.value}})

    def back_up() -> None:
        member.stop()
        shutil.copytree(data, backup)
        member.start()
        member.await_ready()

    def restore() -> None:
        member.stop()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        member.start()
        member.await_ready()

    async with _store(*one.endpoints) as store, trio.open_nursery() as nursery:
        await _put(store, "w/a", b"before")
        await trio.to_thread.run_sync(back_up)
        for number in range(50):
            await _put(store, "w/a", b"%d" % number)
        newest = await _put(store, "w/lost", b"")
        await nursery.start(partial(follow, store, "w/", reset=reset, apply=apply))
        async with store.watch("w/", newest + 1) as watch:
            with trio.move_on_after(0.1):
                await watch.next()
            await trio.to_thread.run_sync(restore)
            with pytest.raises(Compacted, match="was restored"), trio.fail_after(30):
                await watch.next()
        with trio.fail_after(30):
            while seen[-1] != {"w/a": b"before"}:
                await news.wait()
            # Revisions that once were other changes are reported like all others.
            assert await _put(store, "w/a", b"after") < newest
            while seen[-1] != {"w/a": b"after"}:
                await news.wait()
        nursery.cancel_scope.cancel()


async def test_a_watch_whose_reader_was_cancelled_continues_at_its_position(one: Etcd) -> None:
    async with _store(*one.endpoints) as store:
        start = (await store.read_prefix("")).revision + 1
        async with store.watch("w/", start) as watch:
            for number in range(20):
                with trio.CancelScope() as scope:
                    # Raised at once, or while the stream is opened or read.
                    scope.cancel() if number % 2 else None
                    scope.deadline = trio.current_time() + 0.005 * number
                    await watch.next()
            await store.txn([], [Put("w/a", b"1")])
            await store.txn([], [Put("w/a", b"2")])
            assert await _values(watch, b"2") == [b"1", b"2"]


async def test_a_prefix_of_several_pages_is_read_at_one_revision(one: Etcd) -> None:
    async with _store(*one.endpoints) as store:
        keys = [f"p/{number:04d}" for number in range(1300)]
        for start in range(0, len(keys), 128):
            await store.txn([], [Put(key, b"") for key in keys[start : start + 128]])
        first, last = "p/", "p/~"
        await store.txn([], [Put(first, b"")])

        async def move() -> None:
            while True:
                await store.txn([], [Put(last, b""), Delete(first)])
                revision = (await store.txn([], [Put(first, b""), Delete(last)])).revision
                if revision % 3 == 0:
                    await store.compact(revision)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            for _ in range(10):
                found = [item.key for item in (await store.read_prefix("p/")).items]
                assert found in ([first, *keys], [*keys, last])
            nursery.cancel_scope.cancel()


async def test_values_that_exceed_a_message_are_read_in_smaller_pages(one: Etcd) -> None:
    async with _store(*one.endpoints) as store:
        for number in range(60):
            await _put(store, f"large/{number:02d}", bytes(1_400_000))
        snapshot = await store.read_prefix("large/")
        assert [item.key for item in snapshot.items] == [f"large/{number:02d}" for number in range(60)]
        # A watch cannot receive that much at once, so its reader reads the state again.
        async with store.watch("large/", 1) as watch:
            with pytest.raises(Compacted, match="larger than"):
                await _values(watch, b"never put")


async def test_an_endpoint_without_a_server_loses_no_write(one: Etcd) -> None:
    async with _store("127.0.0.1:1", *one.endpoints) as store:
        assert await _put(store, "a", b"1") == 2


async def test_killing_members_one_after_another_loses_no_write_and_repeats_none(three: Etcd) -> None:
    """Writers put numbers without compares; two watches, on different members, see the changes."""
    answered: Counter[bytes] = Counter()
    unknown: set[bytes] = set()
    enough = [trio.Event() for _ in range(3)]

    async def write(store: EtcdMetadataStore, writer: int) -> None:
        number = 0
        while not enough[-1].is_set():
            number += 1
            value = b"%d/%d" % (writer, number)
            try:
                await _put(store, f"w/{writer}", value)
            except Unavailable:
                unknown.add(value)
                continue
            answered[value] += 1
            reached = answered.total() // _WRITES_A_KILL
            for event in enough[:reached]:
                event.set()

    async def watched(store: EtcdMetadataStore, seen: list[bytes]) -> None:
        async with store.watch("w/", 1) as watch:
            seen += await _values(watch, b"end")

    one_seen: list[bytes] = []
    other_seen: list[bytes] = []
    async with (
        _store(*three.endpoints) as store,
        _store(*reversed(three.endpoints)) as other,
        trio.open_nursery() as watches,
    ):
        watches.start_soon(watched, store, one_seen)
        watches.start_soon(watched, other, other_seen)
        async with trio.open_nursery() as writers:
            for writer in range(_WRITERS):
                writers.start_soon(write, store, writer)
            for member, event in zip(three.members, enough, strict=False):
                await event.wait()
                if event is enough[-1]:
                    break
                await trio.to_thread.run_sync(member.kill)
                member.start()
                await trio.to_thread.run_sync(member.await_ready)
        while True:
            try:
                await _put(other, "w/end", b"end")
                break
            except Unavailable:
                continue
    for seen in (one_seen, other_seen):
        counts = Counter(value for value in seen if value != b"end")
        assert max(counts.values()) == 1
        assert set(answered) <= set(counts) <= set(answered) | unknown
    assert set(one_seen) == set(other_seen)
    assert unknown


async def test_a_call_changes_from_a_member_that_hangs_to_another_within_its_timeout(three: Etcd) -> None:
    async with _store(*three.endpoints) as store:
        first = await _put(store, "w/a", b"1")
        async with store.watch("w/", first) as watch:
            assert await _values(watch, b"1") == [b"1"]
            three.members[0].pause()
            found = await store.get("w/a")
            assert found is not None
            assert found.value == b"1"
            await _put(store, "w/a", b"2")
            # Only the call made the watch notice that its member hangs.
            assert await _values(watch, b"2") == [b"2"]


async def test_a_watch_alone_detects_that_its_member_hangs(three: Etcd) -> None:
    async with _store(*three.endpoints, seconds=6) as store, _store(*three.endpoints[1:]) as other:
        first = await _put(store, "w/a", b"1")
        async with store.watch("w/", first) as watch:
            assert await _values(watch, b"1") == [b"1"]
            three.members[0].pause()
            # A read waits for a new leader. A write that the old leader lost would not be sent again.
            await other.get("w/a")
            await _put(other, "w/a", b"2")
            assert await _values(watch, b"2") == [b"2"]


async def test_without_a_majority_calls_time_out_and_work_again_when_it_is_back(three: Etcd) -> None:
    async with _store(*three.endpoints, seconds=3) as store:
        first = await _put(store, "w/a", b"1")
        async with store.watch("w/", first + 1) as watch:
            for member in three.members[:2]:
                await trio.to_thread.run_sync(member.kill)
            with pytest.raises(Unavailable):
                await store.get("w/a")
            with pytest.raises(Unavailable):
                await _put(store, "w/a", b"2")
            for member in three.members[:2]:
                member.start()
            await trio.to_thread.run_sync(three.members[0].await_ready)
            await store.get("w/a")
            await _put(store, "w/a", b"3")
            assert (await _values(watch, b"3"))[-1] == b"3"


async def test_a_lease_that_nobody_keeps_alive_expires_even_if_its_member_is_killed(three: Etcd) -> None:
    async with _store(*three.endpoints) as store:
        kept, left = await store.grant_lease(5), await store.grant_lease(5)
        put = await store.txn([], [Put("m/kept", b"", kept), Put("m/left", b"", left)])
        await trio.to_thread.run_sync(three.members[0].kill)

        async def keep() -> None:
            while True:
                await store.keep_alive(kept)
                await trio.sleep(1)

        async with trio.open_nursery() as nursery, store.watch("m/", put.revision + 1) as watch:
            nursery.start_soon(keep)
            assert [(event.key, event.value) for event in await watch.next()] == [("m/left", None)]
            nursery.cancel_scope.cancel()
        assert await store.get("m/kept") is not None
