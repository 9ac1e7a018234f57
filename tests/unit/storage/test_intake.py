"""Records become durable in the intake of a run, and are recovered from it by the next owner."""

from dataclasses import replace

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.intake.format import Kind, parse
from kafscale.intake.listing import WINDOW
from kafscale.metadata.interface import Delete, Put
from kafscale.metadata.memory import Fault as MetadataFault
from kafscale.metadata.memory import lost_answer, no_answer
from kafscale.metadata.topic_values import ClusterInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.memory import Call, Fault
from kafscale.paths import parse_intake_key
from kafscale.telemetry import State
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import IntakeRegister, PartitionState
from kafscale.v1.storage_pb2 import PartitionAppended
from services.storage.intake.chain import Chain
from services.storage.intake.register import Register, open_register, seal_register
from services.storage.monitoring import _intake, _partitions
from services.storage.settings import StorageSettings
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, siblings, state_key

SLOW_SEGMENTS = StorageSettings(compression_codec="producer", retention_ms=-1, segment_interval_ms=3_600_000)
LEASE = 15.0


async def _state(world: World, ref: PartitionRef) -> PartitionState:
    stored = await world.metadata.get(state_key(ref))
    assert stored is not None
    return PartitionState.FromString(stored.value)


async def _acked(caller: Caller, ref: PartitionRef, *values: bytes) -> PartitionAppended:
    appended = await caller.append(ref, batch(*values))
    assert appended.status == Status.OK, appended.detail
    assert await caller.durable(appended, ref)
    return appended


async def _topic(world: World, caller: Caller, catalog: TopicCatalog) -> PartitionRef:
    """Create a topic whose first record is in a segment, which is flushed at once."""
    ref = await world.topic(catalog)
    await _acked(caller, ref, b"0")
    await caller.flush(ref)
    return ref


def _puts(world: World) -> list[str]:
    return [call.key for call in world.objects.calls if call.kind == "put_if_absent" and "~intake" in call.key]


async def test_an_acknowledgement_needs_one_put_and_no_write_of_metadata(autojump_clock: MockClock) -> None:
    async with (world := World(SLOW_SEGMENTS, intake=True)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _acked(caller, ref, b"a")
        before, puts = await _state(world, ref), len(_puts(world))
        began = trio.current_time()
        await _acked(caller, ref, b"b")
        assert trio.current_time() - began < 0.05
        assert len(_puts(world)) == puts + 1
        assert await _state(world, ref) == before
        assert await caller.read_all(ref) == [b"a", b"b"]


async def test_partitions_share_an_object(autojump_clock: MockClock) -> None:
    async with (world := World(SLOW_SEGMENTS, intake=True)).service() as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=20), 20)
        for ref in refs:
            await caller.append(ref, batch(b"first"))
        puts = len(_puts(world))
        async with trio.open_nursery() as nursery:
            for ref in refs:
                nursery.start_soon(_acked, caller, ref, b"a", b"b")
        assert len(_puts(world)) <= puts + 2


async def test_a_new_owner_recovers_what_a_dead_one_acknowledged(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        for value in (b"a", b"b", b"c"):
            await _acked(caller, ref, value)
        assert (await _state(world, ref)).high_watermark == 1
        first = caller.run_id
    async with world.service() as (caller, _):
        await trio.sleep(LEASE)
        assert await caller.read_all(ref) == [b"0", b"a", b"b", b"c"]
        assert (await _acked(caller, ref, b"d")).base_offset == 4
        assert await caller.read_all(ref) == [b"0", b"a", b"b", b"c", b"d"]
        state = await _state(world, ref)
        assert (state.high_watermark, state.HasField("tail")) == (4, False)
        assert (await caller.epoch_end(ref, 1)).end_offset == 4, "a client with the old epoch keeps its position"
        span = await Chain(world.objects, NAMESPACE, first, now_ms=lambda: 0).span()
        end = parse((await world.objects.get(paths.intake_key(NAMESPACE, first, span.end))).body)
        assert end.header.kind is Kind.SEAL
        register = await world.metadata.get(paths.intake_register_key(NAMESPACE, first))
        assert register is not None
        assert IntakeRegister.FromString(register.value).sealed


async def test_nothing_is_appended_before_the_recovered_records_are_in_segments(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        await _acked(caller, ref, b"a")
    held = trio.Event()
    world.objects.plan = lambda call: Fault(hold=held) if call.key.endswith(".kfs") and "put" in call.kind else None
    async with world.service() as (caller, _):
        await trio.sleep(LEASE)
        assert await caller.read_all(ref, 1) == [b"a"]
        refused = await caller.append(ref, batch(b"b"))
        assert refused.status == Status.UNAVAILABLE
        held.set()
        await trio.sleep(1)
        appended = await caller.append(ref, batch(b"b"))
        assert (appended.status, appended.base_offset) == (Status.OK, 2)


async def test_a_run_that_meets_a_seal_ends(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _acked(caller, ref, b"a")
        number = 1 + sum(paths.parse_intake_key(key) is not None for key in set(_puts(world)))
        await world.objects.put_if_absent(paths.intake_key(NAMESPACE, caller.run_id, number), b"a seal")
        appended = await caller.append(ref, batch(b"b"))
        assert appended.status == Status.OK
        with trio.move_on_after(60):
            await caller.ended.wait()
        assert caller.ended.is_set()
        assert not any(news.high_watermark >= appended.end_offset for news in caller.news), "b is not acknowledged"


async def test_records_become_segments_and_the_intake_is_deleted_below_its_checkpoint(
    autojump_clock: MockClock,
) -> None:
    async with (world := World(intake=True)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        for number in range(300):
            await _acked(caller, ref, b"%d" % number)
            await trio.sleep(0.1)
        await trio.sleep(30)
        await _acked(caller, ref, b"last")
        await trio.sleep(30)
        prefix = paths.intake_prefix(NAMESPACE, caller.run_id)
        left = await world.objects.list_from(prefix)
        assert len(left) <= WINDOW
        newest = parse((await world.objects.get(left[-1].key)).body)
        assert newest.header.number - newest.header.checkpoint <= WINDOW
        assert len(await caller.read_all(ref)) == 301


async def test_a_partition_released_in_a_hurry_leaves_its_tail(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        await _acked(caller, ref, b"a")
        # No segment can be stored, so the drain ends without.
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if call.key.endswith(".kfs") else None
    state = await _state(world, ref)
    assert (state.owner, state.high_watermark, state.tail.end) == ("", 1, 2)
    world.objects.plan = None
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"0", b"a"]
        assert (await _acked(caller, ref, b"b")).base_offset == 2


async def test_an_unanswered_put_is_repeated(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    lost: list[Call] = []

    def plan(call: Call) -> Fault | None:
        if call.kind == "put_if_absent" and "~intake" in call.key and not lost:
            lost.append(call)
            return Fault(hold=trio.Event())
        return None

    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        world.objects.plan = plan
        began = trio.current_time()
        await _acked(caller, ref, b"a")
        assert lost
        assert trio.current_time() - began < 2


@pytest.mark.parametrize("puts_per_second", [1, 10])
async def test_the_pace_limits_puts_after_a_burst(puts_per_second: int, autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(intake_puts_per_second=puts_per_second, intake_put_burst=5) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": "10000"})
        began = trio.current_time()
        for number in range(25):
            await _acked(caller, ref, b"%d" % number)
        assert trio.current_time() - began == pytest.approx(20 / puts_per_second, abs=1.5 / puts_per_second)


async def test_the_intake_of_an_ended_run_is_removed_when_no_partition_needs_it(autojump_clock: MockClock) -> None:
    world = World(intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        await _acked(caller, ref, b"a")
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
    async with world.service(retention_check_ms=10_000):
        await trio.sleep(60)
        assert not await world.objects.list_from(prefix)


async def test_a_run_whose_register_is_sealed_takes_over_nothing(autojump_clock: MockClock) -> None:
    world = World(intake=True)
    async with world.service() as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        await seal_register(world.metadata, NAMESPACE, caller.run_id, own=True)
        fresh = await world.topic(catalog, "fresh")
        refused = await caller.append(fresh, batch(b"a"))
        assert refused.status == Status.UNAVAILABLE
        assert await world.metadata.get(state_key(fresh)) is None
        await _acked(caller, ref, b"b")


async def test_an_intake_that_the_metadata_does_not_know_stops_take_overs(autojump_clock: MockClock) -> None:
    world = World(intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        await _acked(caller, ref, b"a")
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
        await _acked(caller, fresh, b"b")


async def test_metadata_from_before_the_state_format_was_raised_is_noticed(autojump_clock: MockClock) -> None:
    world = World(intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        await _acked(caller, ref, b"a")
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


async def test_a_partition_is_not_released_while_an_object_with_its_records_is_on_its_way(
    autojump_clock: MockClock,
) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog), trio.open_nursery() as nursery:
        ref = await _topic(world, caller, catalog)
        former = caller.run_id
        world.objects.plan = lambda call: Fault(hold=trio.Event()) if call.kind == "put_if_absent" else None
        await caller.append(ref, batch(b"on its way"))
        await trio.sleep(0.1)
        run = caller.service.current
        assert run is not None
        nursery.start_soon(run.drain)
        await trio.sleep(100)
        assert world.counters.hand_overs == 0, "nobody knows whether the record is in the log"
        register = await world.metadata.get(paths.intake_register_key(NAMESPACE, former))
        assert register is not None
        assert IntakeRegister.FromString(register.value).sealed, "the next owner ends the intake first"


async def test_an_object_counts_only_when_all_before_it_are_stored(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        held = trio.Event()
        first: list[Call] = []

        def plan(call: Call) -> Fault | None:
            if call.kind == "put_if_absent" and "~intake" in call.key and (not first or call.key == first[0].key):
                first.append(call)
                return Fault(hold=held)
            return None

        world.objects.plan = plan
        for value in (b"a", b"b"):
            await caller.append(ref, batch(value))
            await trio.sleep(0.1)
        await trio.sleep(5)
        assert max(news.high_watermark for news in caller.news) == 1
        held.set()
        await trio.sleep(1)
        assert await caller.read_all(ref, 1) == [b"a", b"b"]


async def test_the_time_of_each_stage_is_counted(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    counters = world.counters
    stages = (counters.intake_wait_seconds, counters.intake_put_seconds, counters.intake_count_seconds)
    async with world.service(intake_puts_per_second=2, intake_put_burst=1) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": "10000"})
        await _acked(caller, ref, b"0")
        await trio.sleep(10)
        before = [stage.total for stage in stages]
        first: list[str] = []

        def plan(call: Call) -> Fault | None:
            if call.kind != "put_if_absent" or "~intake" not in call.key:
                return None
            first.append(call.key)
            return Fault(delay=0.9 if call.key == first[0] else 0.1)

        world.objects.plan = plan
        await caller.append(ref, batch(b"a"))
        await trio.sleep(0.3)
        # The next token is there 0.5 s after the first put began, and that put is stored after 0.9 s.
        await _acked(caller, ref, b"b")
        spent = [stage.total - was for stage, was in zip(stages, before, strict=True)]
        assert spent == pytest.approx([0.2, 0.9 + 0.1, 0.3])
        assert [sum(stage.counts) for stage in stages] == [3, 3, 3]


async def test_the_age_of_records_in_the_intake_includes_the_time_before_they_were_put_again(
    autojump_clock: MockClock,
) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        puts = len(_puts(world))
        await _acked(caller, ref, b"a")
        await _acked(caller, ref, b"b")
        await trio.sleep(200)
        assert len(_puts(world)) > puts + 2, "it was put again"
        run = caller.service.current
        assert run is not None
        assert run.intake.writer.oldest_seconds == pytest.approx(200, abs=1)
        await caller.flush(ref)
        await trio.sleep(15)
        assert run.intake.writer.oldest_seconds == 0


async def test_health_says_that_an_object_is_not_stored(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await _topic(world, caller, catalog)
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
        ref = await _topic(world, caller, catalog)
        run = caller.service.current
        world.metadata.faults.append(no_answer("keep_alive", times=10**9))
        await trio.sleep(500)
        await _acked(caller, ref, b"durable without a lease")
        assert caller.service.current is run
        await trio.sleep(200)
        assert caller.service.current is not run
        world.metadata.faults.clear()


async def test_a_damaged_intake_is_logged_once_and_degrades_the_instance(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        for value in (b"a", b"b"):
            await _acked(caller, ref, value)
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


async def test_old_records_are_not_put_again_if_nothing_could_be_deleted(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        ref = await _topic(world, caller, catalog)
        await _acked(caller, ref, b"a")
        puts = len(_puts(world))
        await trio.sleep(600)
        assert len(_puts(world)) == puts
