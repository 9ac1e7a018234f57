"""The guarantees of puts, on every store."""

from collections.abc import Callable

import pytest
import trio

from kafscale.objects.interface import Body, ObjectNotFound, ObjectStore, Pieces, PreconditionFailed
from kafscale.objects.puts import put_own

MIB = 1 << 20


async def test_a_put_is_read_back_with_its_etag(store: ObjectStore) -> None:
    etag = await store.put_if_absent("ns/orders/0/a", b"one")
    found = await store.get("ns/orders/0/a")
    assert (found.body, found.etag) == (b"one", etag)
    info = await store.head("ns/orders/0/a")
    assert (info.key, info.size, info.etag) == ("ns/orders/0/a", 3, etag)


async def test_an_object_is_created_once(store: ObjectStore) -> None:
    etag = await store.put_if_absent("ns/a", b"first")
    with pytest.raises(PreconditionFailed):
        await store.put_if_absent("ns/a", b"second")
    found = await store.get("ns/a")
    assert (found.body, found.etag) == (b"first", etag)


async def test_of_eight_racers_one_creates_the_object(store: ObjectStore) -> None:
    for round_ in range(4):
        key = f"ns/race/{round_}"
        won: list[tuple[int, str]] = []
        lost: list[int] = []

        async def race(racer: int, key: str = key, won: list[tuple[int, str]] = won, lost: list[int] = lost) -> None:
            try:
                won.append((racer, await store.put_if_absent(key, b"%d" % racer * 50_000)))
            except PreconditionFailed:
                lost.append(racer)

        async with trio.open_nursery() as nursery:
            for racer in range(8):
                nursery.start_soon(race, racer)
        assert len(won) == 1
        assert len(lost) == 7
        found = await store.get(key)
        assert (found.body, found.etag) == (b"%d" % won[0][0] * 50_000, won[0][1])


async def test_a_replace_needs_the_etag_that_the_object_has(store: ObjectStore) -> None:
    first = await store.put_if_absent("ns/a", b"first")
    second = await store.replace_if_match("ns/a", b"second", first)
    assert second != first
    with pytest.raises(PreconditionFailed):
        await store.replace_if_match("ns/a", b"third", first)
    found = await store.get("ns/a")
    assert (found.body, found.etag) == (b"second", second)


async def test_an_absent_object_is_not_replaced(store: ObjectStore) -> None:
    etag = await store.put_if_absent("ns/there", b"x")
    with pytest.raises(PreconditionFailed):
        await store.replace_if_match("ns/absent", b"x", etag)
    with pytest.raises(PreconditionFailed):
        await store.replace_if_match("elsewhere/0/absent", b"x", etag)
    assert [info.key for info in await store.list_from("")] == ["ns/there"]


async def test_of_eight_racers_one_replaces_the_object(store: ObjectStore) -> None:
    etag = await store.put_if_absent("ns/a", b"start")
    for _ in range(4):
        won: list[tuple[bytes, str]] = []

        async def race(body: bytes, etag: str = etag, won: list[tuple[bytes, str]] = won) -> None:
            try:
                won.append((body, await store.replace_if_match("ns/a", body, etag)))
            except PreconditionFailed:
                return

        async with trio.open_nursery() as nursery:
            for racer in range(8):
                nursery.start_soon(race, etag.encode() + b"%d" % racer)
        assert len(won) == 1
        found = await store.get("ns/a")
        assert (found.body, found.etag) == won[0]
        etag = found.etag


@pytest.mark.parametrize("size", [0, 1, 10 * MIB + 1])
async def test_objects_of_every_size_round_trip(store: ObjectStore, size: int) -> None:
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    etag = await store.put_if_absent("ns/a", body)
    assert (await store.get("ns/a")).body == body
    assert (await store.head("ns/a")).size == size
    replaced = await store.replace_if_match("ns/a", body + b"!", etag)
    found = await store.get("ns/a")
    assert found.etag == replaced
    assert found.body == body + b"!"


def _pieces(body: bytes) -> Pieces:
    return Pieces([body[at : at + 500] for at in range(0, len(body), 500)])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, _pieces])
async def test_every_kind_of_body_is_stored(store: ObjectStore, kind: Callable[[bytes], Body]) -> None:
    body = bytes(range(256)) * 4_000  # more pieces than one system call writes
    await store.put_if_absent("ns/a", kind(body))
    assert (await store.get("ns/a")).body == body
    await store.put_if_absent("ns/empty", kind(b""))
    assert (await store.get("ns/empty")).body == b""
    assert await put_own(store, "ns/a", kind(body)) is None
    assert await put_own(store, "ns/a", kind(b"other")) == await store.get("ns/a")


@pytest.mark.parametrize("kind", [bytes, memoryview, _pieces])
async def test_an_object_that_is_sent_slowly_is_stored_whole(store: ObjectStore, kind: Callable[[bytes], Body]) -> None:
    body = bytes(range(256)) * 4096
    await store.put_if_absent("ns/slow", kind(body), send_seconds=0.1)
    assert (await store.get("ns/slow")).body == body


async def test_readers_never_see_a_part_of_a_put(store: ObjectStore) -> None:
    size = 2 * MIB
    bodies = [letter * size for letter in (b"a", b"b", b"c", b"d", b"e")]
    seen: set[bytes] = set()
    with trio.CancelScope() as readers:

        async def read() -> None:
            while True:
                try:
                    body = (await store.get("ns/a")).body
                    part = await store.get_range("ns/a", size - 10, 20)
                except ObjectNotFound:
                    await trio.lowlevel.checkpoint()
                    continue
                assert len(part) == 10
                assert len(set(part)) == 1
                seen.add(body)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(read)
            etag = await store.put_if_absent("ns/a", bodies[0])
            for body in bodies[1:]:
                etag = await store.replace_if_match("ns/a", body, etag)
            while bodies[-1] not in seen:
                await trio.lowlevel.checkpoint()
            readers.cancel()
    assert seen <= set(bodies)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", ".", "a/../b", "a/./b", "a\nb", "a\x00", "x" * 256, "x/" * 600 + "x"]
)
async def test_an_invalid_key_is_refused_before_anything_happens(store: ObjectStore, key: str) -> None:
    with pytest.raises(ValueError, match="not an object key"):
        await store.put_if_absent(key, b"x")
    with pytest.raises(ValueError, match="not an object key"):
        await store.replace_if_match(key, b"x", "etag")
    with pytest.raises(ValueError, match="not an object key"):
        await store.get(key)
    with pytest.raises(ValueError, match="not an object key"):
        await store.delete_many(["ns/a", key])
    assert await store.list_from("") == []
