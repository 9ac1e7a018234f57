"""Instances die, pause and are late at every step of a sink's epoch. The log has each epoch once and in order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Event, MetadataStore, Watch
from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Fault
from services.storage.settings import StorageSettings
from tests.support.storage.cluster import Cluster, Instance, cluster, until
from tests.support.storage.harness import NAMESPACE, World, batch, siblings
from tests.support.storage.sinking import (
    Driver,
    Flaky,
    Step,
    Stop,
    StoppingMetadata,
    StoppingObjects,
    commit,
    logs,
    sink_record,
    stage_keys,
    staged,
    steps,
)

PARTITIONS = 4
CHECK_MS = 20_000
STEPS = steps(PARTITIONS)


async def _start_stopping(two: Cluster, stop: Stop, step: Step) -> Instance:
    started = await two.start("a:1", objects=StoppingObjects(two.world.objects, stop, step), stage_check_ms=CHECK_MS)
    started.gate._store = StoppingMetadata(two.metadata, stop, step)
    return started


async def _applied(world: World) -> None:
    async def nothing_remains() -> bool:
        return not (await sink_record(world)).remaining

    await until(nothing_remains, seconds=120)


async def _stop_at(step: Step, *, done: bool, pause: float) -> None:
    # With intakes, the epoch is applied before its records are in segments.
    intake = step.name not in ("segment", "progress")
    world, stop = World(intake=intake), Stop(step, done=done, pause=pause)
    async with cluster(world, "b:1", stage_check_ms=CHECK_MS) as two:
        a = await _start_stopping(two, stop, step)
        refs = siblings(await world.topic(a.catalog, partitions=PARTITIONS), PARTITIONS)
        for ref in refs:
            await two.append_durably(ref, batch(b"0"))
        assert {two.assigned(ref).address for ref in refs} == {"a:1", "b:1"}
        # The instance that applies the last partition deletes the stages. Here it owns all partitions.
        written = [ref for ref in refs if two.assigned(ref) is a] if step.name == "deletion" else refs
        driver = Driver(two, written)
        assert await driver.write(0)
        stop.instance = a
        for epoch in (1, 2):
            await driver.write(epoch)
            if step.name == "forgetting":
                # A state forgets an epoch with its next write.
                await _applied(world)
                for ref in refs:
                    await two.append_durably(ref, batch(b"x"))
                    await two.assigned(ref).caller.flush(ref)
        await driver.write(3)
        await _applied(world)
        await trio.sleep(pause)
        assert stop.reached.is_set()
        found = [[value for value in log if value != b"x"] for log in await logs(two, written)]
        assert found == [[b"0", *driver.expected(ref)] for ref in written]
        # Nothing is applied twice, and nothing is remembered forever.
        if pause:
            await a.kill()
        for ref in written:
            await two.append_durably(ref, batch(b"last"))
            await two.assigned(ref).caller.flush(ref)
            assert not (await two.state(ref)).sinks
        # Uncommitted stages expire.
        world.now_ms += StorageSettings().stage_expiry_ms + 1
        await trio.sleep(2 * CHECK_MS / 1000)
        assert await stage_keys(world) == []


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
async def test_an_epoch_is_applied_once_if_an_instance_dies_at_any_step(
    autojump_clock: MockClock, step: Step, done: bool
) -> None:
    await _stop_at(step, done=done, pause=0)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "step",
    [step for step in STEPS if step.name not in ("stage", "manifest-read", "forgetting")],
    ids=lambda step: step.name,
)
async def test_an_epoch_is_applied_once_if_an_instance_pauses_at_any_step(
    autojump_clock: MockClock, step: Step, done: bool
) -> None:
    await _stop_at(step, done=done, pause=40)


@pytest.mark.parametrize("seed", range(8))
async def test_epochs_are_applied_once_despite_lost_answers_and_restarts(autojump_clock: MockClock, seed: int) -> None:
    random, world = Random(seed), World()
    async with cluster(world, "first:1") as many:
        refs = siblings(await world.topic(many.instances[0].catalog, partitions=PARTITIONS), PARTITIONS)
        driver, flaky = Driver(many, refs), []

        async def start(number: int) -> None:
            objects = Flaky(world.objects, random.random, 0.05)
            started = await many.start(f"s-{number}:1", objects=objects, handover_timeout_ms=3_000)
            started.gate._store = metadata = Flaky(many.metadata, random.random, 0.05)
            flaky.extend([objects, metadata])

        async def trouble() -> None:
            for number in range(100):
                await trio.sleep(random.uniform(0.2, 4))
                victim = random.choice(many.instances)
                if len(many.instances) < 3 or random.random() < 0.3:
                    await start(number)
                elif random.random() < 0.5:
                    await victim.kill()
                else:
                    with trio.move_on_after(20):
                        await victim.stop()
                    await victim.kill()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            for epoch in range(0, 24, 2):
                await driver.write(epoch, wait_ms=random.choice([0, 2_000]))
                await trio.sleep(random.uniform(0, 1))
            nursery.cancel_scope.cancel()
        for store in flaky:
            store.share = 0.0
        await _applied(world)
        assert await logs(many, refs) == [driver.expected(ref) for ref in refs]


class _LateWatch:
    """A metadata store whose events for sinks are delayed until ``go``."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.go = trio.Event()
        self.go.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Any]:
        async with self._store.watch(prefix, from_revision) as watch:
            yield _DelayedWatch(watch, self) if "/sinks/" in prefix else watch


@dataclass(frozen=True)
class _DelayedWatch:
    watch: Watch
    store: _LateWatch

    async def next(self) -> tuple[Event, ...]:
        events = await self.watch.next()
        await self.store.go.wait()
        return events


async def test_an_owner_with_an_outdated_sink_record_reads_it_before_appending(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    late = _LateWatch(world.metadata)
    async with cluster(world, "a:1") as two:
        (a,) = two.instances
        refs = siblings(await world.topic(a.catalog, partitions=8), 8)
        two.metadata = cast(MetadataStore, late)
        b = await two.start("b:1")
        await trio.sleep(1)
        ref = next(ref for ref in refs if two.assigned(ref) is a)
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.key.endswith(".kfs") else None
        made = await staged(a.caller, ref, batch(b"0"), batch(b"1"))
        assert not (await commit(a.caller, made, wait_ms=1_000)).applied
        late.go = trio.Event()
        held.set()
        # The stages stay.
        world.objects.plan = lambda call: Fault(error=Unavailable("no")) if call.kind == "delete_many" else None
        assert (await commit(a.caller, made)).applied
        await two.append_durably(ref, batch(b"2"))
        assert not (await two.state(ref)).sinks
        await a.kill()

        async def taken() -> bool:
            return await two.owner(ref) == b.caller.run_id

        await until(taken)
        await trio.sleep(20)
        late.go.set()
        await two.append_durably(ref, batch(b"3"))
        assert await two.read_all(ref) == [b"0", b"1", b"2", b"3"]


async def test_a_buffered_stage_is_not_appended_again_if_the_next_one_is_unreadable(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(flush_interval_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.append(ref, batch(b"0"))
        stages = [await staged(caller, ref, batch(b"1"), batch(b"2")), await staged(caller, ref, batch(b"3"))]
        failing = Fault(error=Unavailable("no"))
        world.objects.plan = lambda call: failing if (call.kind, call.key) == ("get", stages[1].key) else None
        assert not (await commit(caller, *stages, wait_ms=3_000)).applied
        world.objects.plan = None
        assert (await commit(caller, *stages)).applied
        assert await caller.read_all(ref) == [b"0", b"1", b"2", b"3"]


async def test_a_state_forgets_an_epoch_only_after_its_record_is_complete(autojump_clock: MockClock) -> None:
    world = World()
    async with cluster(world, "a:1") as one:
        (a,) = one.instances
        ref = await world.topic(a.catalog)
        await one.append_durably(ref, batch(b"0"))
        made = await staged(a.caller, ref, batch(b"1"))
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.key.endswith(".kfs") else None
        assert not (await commit(a.caller, made, wait_ms=0)).applied
        world.metadata.faults = [no_answer("txn", key=paths.sink_key(NAMESPACE, "s"), times=1_000_000)]
        held.set()
        world.objects.plan = None
        await trio.sleep(2)
        await one.append_durably(ref, batch(b"2"))
        await a.kill()
        world.metadata.faults = []
        b = await one.start("b:1")
        assert (await commit(b.caller, made)).applied
        assert await one.read_all(ref) == [b"0", b"1", b"2"]


async def test_a_partition_is_handed_over_while_a_large_epoch_is_appended(autojump_clock: MockClock) -> None:
    world = World()
    sizes: dict[str, Any] = {"partition_buffer_bytes": 64_000, "buffer_bytes": 64_000, "flush_interval_ms": 500}
    async with cluster(world, "a:1", **sizes, handover_timeout_ms=60_000) as two:
        (a,) = two.instances
        refs = siblings(await world.topic(a.catalog, partitions=4), 4)
        for ref in refs:
            await two.append_durably(ref, batch(b"0"))
        values = {ref.partition: [b"%d.%d" % (ref.partition, n) + bytes(2_000) for n in range(200)] for ref in refs}
        stages = [await staged(a.caller, ref, *(batch(value) for value in values[ref.partition])) for ref in refs]
        assert not (await commit(a.caller, *stages, wait_ms=1_000)).applied
        b = await two.start("b:1", **sizes)
        moved = [ref for ref in refs if two.assigned(ref) is b]
        assert moved

        async def handed_over() -> bool:
            return all([await two.owner(ref) == b.caller.run_id for ref in moved])

        # Long before the whole epoch is appended. The next owner continues from the state's progress.
        assert await until(handed_over) < 10
        assert list((await sink_record(world)).remaining)
        assert (await commit(b.caller, *stages, wait_ms=60_000)).applied
        assert await logs(two, refs) == [[b"0", *values[ref.partition]] for ref in refs]
