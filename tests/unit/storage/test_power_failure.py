"""What a power failure has damaged of an intake is cut off, and its partitions come online."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.objects.interface import Object
from kafscale.v1.common_pb2 import Status
from services.storage.intake.power_failure import cut_after_power_failure
from services.storage.settings import StorageSettings
from tests.support.storage.harness import NAMESPACE, World, batch

SLOW_SEGMENTS = StorageSettings(compression_codec="producer", retention_ms=-1, segment_interval_ms=3_600_000)


async def _remove(world: World, key: str) -> None:
    await world.objects.delete_many([key])


async def _empty(world: World, key: str) -> None:
    await world.objects.delete_many([key])
    await world.objects.put_if_absent(key, b"")


async def _tear(world: World, key: str) -> None:
    body = (await world.objects.get(key)).body
    await world.objects.delete_many([key])
    await world.objects.put_if_absent(key, body[:50] + bytes(len(body) - 50))


@pytest.mark.parametrize("damage", [_remove, _empty, _tear])
@pytest.mark.parametrize("number", [2, 4, 9])
async def test_records_up_to_the_first_damage_are_kept(
    autojump_clock: MockClock, damage: Callable[[World, str], Awaitable[None]], number: int
) -> None:
    world = World(SLOW_SEGMENTS)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        for value in range(9):
            assert await caller.durable(await caller.append(ref, batch(b"%d" % value)), ref)
        run_id = caller.run_id
    await damage(world, paths.intake_key(NAMESPACE, run_id, number))
    await cut_after_power_failure(world.objects, NAMESPACE)
    await trio.sleep(60)
    async with world.service() as (caller, _):
        appended = await caller.append(ref, batch(b"next"))
        assert appended.status == Status.OK
        assert await caller.durable(appended, ref)
        # The first record is in a segment, and each of the others in an object.
        assert await caller.read_all(ref) == [b"%d" % value for value in range(number - 1)] + [b"next"]


async def test_a_whole_intake_and_its_seals_are_kept(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        for value in range(5):
            assert await caller.durable(await caller.append(ref, batch(b"%d" % value)), ref)
    await trio.sleep(60)
    before = await world.objects.list_from(paths.intakes_prefix(NAMESPACE))
    await cut_after_power_failure(world.objects, NAMESPACE)
    assert await world.objects.list_from(paths.intakes_prefix(NAMESPACE)) == before
    async with world.service(graceful=False) as (caller, _):
        assert await caller.read_all(ref) == [b"%d" % value for value in range(5)]
    before = await world.objects.list_from(paths.intakes_prefix(NAMESPACE))
    await cut_after_power_failure(world.objects, NAMESPACE)
    assert await world.objects.list_from(paths.intakes_prefix(NAMESPACE)) == before


async def test_one_bad_read_cuts_nothing_off(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(SLOW_SEGMENTS)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        for value in range(5):
            assert await caller.durable(await caller.append(ref, batch(b"%d" % value)), ref)
    before = await world.objects.list_from(paths.intakes_prefix(NAMESPACE))
    get, bad = world.objects.get, [paths.intake_key(NAMESPACE, caller.run_id, 3)]

    async def once_bad(key: str) -> Object:
        found = await get(key)
        if key in bad:
            bad.remove(key)
            return Object(found.body[:40] + bytes(len(found.body) - 40), found.etag)
        return found

    monkeypatch.setattr(world.objects, "get", once_bad)
    await cut_after_power_failure(world.objects, NAMESPACE)
    assert not bad
    assert await world.objects.list_from(paths.intakes_prefix(NAMESPACE)) == before
