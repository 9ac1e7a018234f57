"""Several drivers use the same sink. Every epoch in the logs is complete, applied once, and from one driver."""

from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Unavailable
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import CommitSinkReply, Stage
from tests.support.storage.cluster import Cluster, cluster, until
from tests.support.storage.harness import Caller, World, batch, siblings
from tests.support.storage.sinking import Driver, Flaky, commit, discard, logs, sink_record, stage, stage_keys

PARTITIONS, EPOCHS = 2, 5
CHANGES: dict[str, Any] = {"stage_check_ms": 1_000, "stage_expiry_ms": 600_000}


class _Rival:
    """Stages each epoch until it or the other driver has committed it, and discards stages at random."""

    def __init__(self, many: Cluster, refs: list[PartitionRef], random: Random, name: int) -> None:
        self._many = many
        self._driver = Driver(many, refs)
        self._refs = refs
        self._random = random
        self._name = name

    async def run(self, nursery: trio.Nursery) -> None:
        for epoch in range(EPOCHS):
            while True:
                stages = await self._stage_all(epoch)
                if self._random.random() < 0.3:
                    nursery.start_soon(self._discard, stages)
                    if self._random.random() < 0.5:
                        continue
                await trio.sleep(self._random.choice([0, 0, 5]))
                wait_ms = self._random.choice([0, 1_000])
                reply = await self._driver.ask(partial(_commit, stages, epoch, wait_ms))
                if reply.status == Status.OK:
                    break
                assert reply.status == Status.INVALID

    async def _stage_all(self, epoch: int) -> list[Stage]:
        stages = []
        for ref in self._refs:
            for number in range(self._random.choice([1, 2])):
                records = b"".join(batch(b"%d.%d.%d.%d" % (epoch, self._name, number, half)) for half in (0, 1))
                reply = await self._driver.ask(partial(stage, ref=ref, records=records, epoch=epoch))
                assert reply.status == Status.OK
                stages.append(reply.stage)
        return stages

    async def _discard(self, stages: list[Stage]) -> None:
        await trio.sleep(self._random.choice([0, 0.05, 2]))
        with suppress(Unavailable):
            await discard(self._random.choice(self._many.instances).caller, *stages)


async def _commit(stages: list[Stage], epoch: int, wait_ms: int, caller: Caller) -> CommitSinkReply:
    return await commit(caller, *stages, epoch=epoch, wait_ms=wait_ms)


@pytest.mark.parametrize("seed", range(6))
async def test_every_epoch_comes_whole_and_once_from_one_driver(autojump_clock: MockClock, seed: int) -> None:
    random, world = Random(seed), World()
    async with cluster(world, "first:1", **CHANGES) as many:
        refs = siblings(await world.topic(many.instances[0].catalog, partitions=PARTITIONS), PARTITIONS)
        flaky: list[Flaky] = []

        async def trouble() -> None:
            for number in range(60):
                await trio.sleep(random.uniform(0.5, 4))
                world.now_ms += random.choice([0, 1_000, 50_000])
                if len(many.instances) < 3:
                    objects = Flaky(world.objects, random.random, 0.04)
                    started = await many.start(f"s-{number}:1", objects=objects, **CHANGES)
                    started.gate._store = metadata = Flaky(many.metadata, random.random, 0.04)
                    flaky.extend([objects, metadata])
                else:
                    await random.choice(many.instances).kill()

        async with trio.open_nursery() as background:
            background.start_soon(trouble)
            async with trio.open_nursery() as nursery:
                for name in range(2):
                    nursery.start_soon(_Rival(many, refs, random, name).run, nursery)
            background.cancel_scope.cancel()
        for store in flaky:
            store.share = 0.0

        async def applied() -> bool:
            return not (await sink_record(world)).remaining

        await until(applied, seconds=120)
        found = []
        for values in await logs(many, refs):
            log = [tuple(map(int, (value or b"").split(b"."))) for value in values]
            # Each epoch in order, once, and from one driver.
            assert [entry[0] for entry in log] == sorted(entry[0] for entry in log)
            assert len(set(log)) == len(log)
            by_epoch = {entry[0]: [other for other in log if other[0] == entry[0]] for entry in log}
            assert all(len({entry[1] for entry in entries}) == 1 for entries in by_epoch.values())
            assert all(len(entries) in (2, 4) and entries == sorted(entries) for entries in by_epoch.values())
            found.append([entries[0][1] for entries in by_epoch.values()])
        assert found == [found[0]] * PARTITIONS
        assert len(found[0]) == EPOCHS
        world.now_ms += 700_000

        async def tidy() -> bool:
            return await stage_keys(world) == []

        # An instance that started late, or whose last attempt failed, tries again after a pause.
        await until(tidy, seconds=120)
