"""Registers, the end of runs and of their intakes, and what operators are shown of damage."""

from dataclasses import replace

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.intake.format import Kind, parse
from kafscale.metadata.interface import Delete, Put
from kafscale.metadata.memory import Fault as MetadataFault
from kafscale.metadata.memory import lost_answer, no_answer
from kafscale.metadata.topic_values import NEWEST_STATE_FORMAT, ClusterInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.memory import Call, Fault
from kafscale.paths import parse_intake_key
from kafscale.telemetry import State
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import IntakeRegister
from services.storage.intake.register import Register, open_register, seal_register
from services.storage.monitoring import _intake, _partitions
from tests.support.storage.harness import NAMESPACE, World, batch, state_key
from tests.unit.storage.acknowledging import LEASE, SLOW_SEGMENTS, acked, topic_with_record


async def test_the_intake_of_an_ended_run_is_removed_when_no_partition_needs_it(autojump_clock: MockClock) -> None:
    world = World(intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await acked(caller, ref, b"a")
        await world.topic(catalog, "idle")
        ended = caller.run_id
    held = trio.Event()
    # No segment can be stored, so the intake is needed.
    world.objects.plan = lambda call: Fault(hold=held) if call.key.endswith(".kfs") and "put" in call.kind else None
    register = paths.intake_register_key(NAMESPACE, ended)
    prefix = paths.intake_prefix(NAMESPACE, ended)
    async with world.service(retention_check_ms=10_000) as (caller, _):
        await trio.sleep(60)
        assert await caller.read_all(ref) == [b"0", b"a"]
        assert await world.metadata.get(register) is not None
        world.objects.plan = None
        held.set()
        await trio.sleep(60)
        assert await world.metadata.get(register) is None
        left = [parse_intake_key(info.key) for info in await world.objects.list_from(prefix)]
        numbers = [key.number for key in left if key is not None and key.number is not None]
        assert len(numbers) + 1 == len(left), "the mark stays"
        for number in numbers:
            seal = parse((await world.objects.get(paths.intake_key(NAMESPACE, ended, number))).body)
            assert seal.header.kind is Kind.SEAL
    own = await world.metadata.get(paths.intake_register_key(NAMESPACE, caller.run_id))
    assert own is not None
    assert IntakeRegister.FromString(own.value).sealed, "a run that stops takes over nothing more"
    world.now_ms += 31 * 24 * 3_600_000
    # While a seal is left, so is the mark: a seal alone would look like an intake that the metadata has lost.
    first, mark = (await world.objects.list_from(prefix))[0].key, str(paths.IntakeKey(NAMESPACE, ended, None))

    def delete_in_part(call: Call) -> Fault | None:
        """Delete nothing but the mark."""
        if call.kind != "delete_many" or first not in call.keys:
            return None
        if mark in call.keys:
            del world.objects._objects[mark]
        return Fault(error=Unavailable("an object was not deleted"))

    world.objects.plan = delete_in_part
    async with world.service(retention_check_ms=10_000):
        await trio.sleep(60)
    assert mark in [info.key for info in await world.objects.list_from(prefix)]
    world.objects.plan = None
    async with world.service(retention_check_ms=10_000):
        await trio.sleep(60)
        assert not await world.objects.list_from(prefix)


async def test_a_run_whose_register_is_sealed_takes_over_nothing(autojump_clock: MockClock) -> None:
    world = World(intake=True)
    async with world.service() as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await seal_register(world.metadata, NAMESPACE, caller.run_id, own=True)
        fresh = await world.topic(catalog, "fresh")
        refused = await caller.append(fresh, batch(b"a"))
        assert refused.status == Status.UNAVAILABLE
        assert await world.metadata.get(state_key(fresh)) is None
        await acked(caller, ref, b"b")


async def test_an_intake_that_the_metadata_does_not_know_stops_take_overs(autojump_clock: MockClock) -> None:
    world = World(intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await acked(caller, ref, b"a")
        register = paths.intake_register_key(NAMESPACE, caller.run_id)
        await world.metadata.txn((), [Delete(register)])
    async with world.service() as (caller, _):
        await trio.sleep(LEASE)
        refused = await caller.fetch(ref, 0)
        assert refused.status == Status.DAMAGED
        assert "rolled back" in refused.detail
        finding = _intake(caller.service.current)
        assert (finding.state, "run-1" in finding.reason) == (State.UNAVAILABLE, True)
    await world.objects.put_if_absent(str(paths.IntakeKey(NAMESPACE, "run-1", None)), b"0")
    async with world.service() as (caller, catalog):
        fresh = await world.topic(catalog, "fresh")
        await acked(caller, fresh, b"b")


async def test_metadata_from_before_the_state_format_was_raised_is_noticed(autojump_clock: MockClock) -> None:
    world = World(intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        await acked(caller, ref, b"a")
        register = paths.intake_register_key(NAMESPACE, caller.run_id)
    older = replace(await TopicCatalog(world.metadata, NAMESPACE).cluster(), state_format=1)
    await world.metadata.txn((), [Delete(register), Put(paths.cluster_key(NAMESPACE), older.value())])
    async with world.service() as (caller, _):
        await trio.sleep(LEASE)
        refused = await caller.fetch(ref, 0)
        assert refused.status == Status.DAMAGED
        assert "rolled back" in refused.detail


async def test_a_register_that_was_written_without_an_answer_keeps_its_format(autojump_clock: MockClock) -> None:
    world, opened = World(), list[Register]()
    key, cluster_key = paths.intake_register_key(NAMESPACE, "r"), paths.cluster_key(NAMESPACE)
    await world.metadata.txn((), [Put(cluster_key, ClusterInfo("A" * 22, 0).value())])
    # The first transaction only reads.
    world.metadata.faults = [MetadataFault(method="txn", key=key), lost_answer(key=key)]

    async def open_it() -> None:
        opened.append(await open_register(world.metadata, NAMESPACE, "r"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_it)
        await trio.sleep(0.01)
        await world.metadata.txn((), [Put(cluster_key, ClusterInfo("A" * 22, 0, 2).value())])
    assert not opened[0].has_intake, "the next owner does not look for an intake, because the register denies it"
    stored = await world.metadata.get(key)
    assert stored is not None
    assert not IntakeRegister.FromString(stored.value).intake


async def test_health_says_that_an_object_is_not_stored(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        assert _intake(caller.service.current).state == State.HEALTHY
        for fault, reason in (
            (Fault(error=Unavailable("no route")), "no route"),
            (Fault(hold=trio.Event()), "no answer"),
        ):
            world.objects.plan = lambda call, fault=fault: fault if call.kind == "put_if_absent" else None
            appended = await caller.append(ref, batch(b"a"))
            await trio.sleep(5)
            assert _intake(caller.service.current).state == State.HEALTHY
            await trio.sleep(6)
            assert _intake(caller.service.current).state == State.UNAVAILABLE
            assert reason in _intake(caller.service.current).reason
            world.objects.plan = None
            if fault.hold is not None:
                fault.hold.set()
            assert await caller.durable(appended, ref)
            assert _intake(caller.service.current).state == State.HEALTHY


async def test_a_run_whose_lease_is_not_confirmed_for_long_ends(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.storage.intake.intake._LONGEST_UNPROVEN_SECONDS", 600.0)
    async with (world := World(SLOW_SEGMENTS, intake=True)).service() as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        run = caller.service.current
        world.metadata.faults.append(no_answer("keep_alive", times=10**9))
        await trio.sleep(500)
        await acked(caller, ref, b"durable without a lease")
        assert caller.service.current is run
        await trio.sleep(200)
        assert caller.service.current is not run
        world.metadata.faults.clear()


async def test_a_damaged_intake_is_logged_once_and_degrades_the_instance(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await topic_with_record(world, caller, catalog)
        for value in (b"a", b"b"):
            await acked(caller, ref, value)
        key = paths.intake_key(NAMESPACE, caller.run_id, 2)
    body = (await world.objects.get(key)).body
    await world.objects.delete_many([key])
    await world.objects.put_if_absent(key, body[:-1] + b"?")
    with capture_logs() as logs:
        async with world.service() as (caller, _):
            await trio.sleep(120)
            assert (await caller.append(ref, batch(b"c"))).status == Status.DAMAGED
            finding = _partitions(caller.service.current)
            assert (finding.state, "cannot be taken over" in finding.reason) == (State.DEGRADED, True)
    assert [entry["partition"] for entry in logs if entry["event"] == "take-over not possible"] == ["orders-0"]


async def test_a_run_writes_no_state_format_that_it_does_not_know(autojump_clock: MockClock) -> None:
    world = World()
    cluster = ClusterInfo("A" * 22, 0, NEWEST_STATE_FORMAT + 1)
    await world.metadata.txn((), [Put(paths.cluster_key(NAMESPACE), cluster.value())])
    assert (await open_register(world.metadata, NAMESPACE, "r")).state_format == NEWEST_STATE_FORMAT
