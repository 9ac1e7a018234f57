"""The lag of groups in the metrics."""

import trio

from kafscale import paths
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import MemoryMetadataStore, no_answer
from kafscale.v1.metadata_pb2 import PartitionState
from services.coordinator.monitoring import families
from tests.support.coordinator.harness import topic_id
from tests.support.coordinator.shell import NAMESPACE, Instance, coordinators

SECONDS = 30


async def _log(store: MemoryMetadataStore, partition: int, start: int, end: int, *, of: str = "t") -> None:
    state = PartitionState(format=1, topic_id=topic_id(of), log_start=start, high_watermark=end)
    key = paths.partition_state_key(NAMESPACE, "t", partition)
    await store.txn([], [Put(key, state.SerializeToString())])


def _exported(instance: Instance) -> tuple[dict[tuple[str, ...], object], object]:
    """Return the lags by group and topic, and how many are left out."""
    service = instance.service
    by_name = {
        family.name: family.read()
        for family in families(instance.deps.counters, lambda: service.current, service.settings)
    }
    lags = by_name["kafscale_coordinator_group_lag"]
    return dict(lags), by_name["kafscale_coordinator_group_lags_left_out"][()]


async def test_lag_is_the_number_of_existing_records_after_the_committed_offset(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1", group_lag_series=10) as made:
        await _log(store, 0, 0, 100)
        await _log(store, 1, 40, 60)
        await _log(store, 2, 0, 1000, of="earlier t")
        # Partition 3 has no log, and partition 4 has a committed offset of the other group only.
        await _log(store, 4, 0, 7)
        await made.commit({0: 90, 1: 10, 2: 5, 3: 5}, "slow")
        await made.commit({0: 100, 4: 0}, "fast")
        (instance,) = made.instances
        assert _exported(instance) == ({}, 0)
        await trio.sleep(SECONDS + 1)
        assert _exported(instance) == ({("slow", "t"): 10 + 20, ("fast", "t"): 7}, 0)
        await made.commit({0: 100, 1: 60, 2: 5}, "slow")
        await trio.sleep(SECONDS)
        assert _exported(instance) == ({("slow", "t"): 0, ("fast", "t"): 7}, 0)


async def test_the_largest_lags_are_exported_and_the_others_counted(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1", group_lag_series=2) as made:
        await _log(store, 0, 0, 100)
        for number in range(5):
            await made.commit({0: 10 * number}, f"g{number}")
        await trio.sleep(SECONDS + 1)
        assert _exported(made.instances[0]) == ({("g0", "t"): 100, ("g1", "t"): 90}, 3)


async def test_the_last_lags_stay_while_the_store_does_not_answer(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1", group_lag_series=2) as made:
        await _log(store, 0, 0, 100)
        await made.commit({0: 10})
        await trio.sleep(SECONDS + 1)
        await _log(store, 0, 0, 200)
        store.faults.append(no_answer("txn"))
        await trio.sleep(SECONDS)
        assert store.faults[0].times == 0
        assert _exported(made.instances[0]) == ({("g", "t"): 90}, 0)
        await trio.sleep(SECONDS)
        assert _exported(made.instances[0]) == ({("g", "t"): 190}, 0)


async def test_each_coordinator_exports_only_its_own_groups(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1", group_lag_series=100) as made:
        await _log(store, 0, 0, 100)
        names = [f"g{number}" for number in range(20)]
        for name in names:
            await made.commit({0: 10}, name)
        await trio.sleep(SECONDS + 1)
        (first,) = made.instances
        second = await made.start("b:1", group_lag_series=100)

        def served(instance: Instance) -> set[tuple[str, ...]]:
            assert instance.service.current is not None
            return {(name, "t") for name in names if paths.group_shard(name) in instance.service.current.shards}

        while len(served(first)) + len(served(second)) < len(names) or not served(second):  # noqa: ASYNC110  no event for it
            await trio.sleep(0.1)
        # Before the next check.
        assert set(_exported(first)[0]) == served(first)
        await trio.sleep(SECONDS + 1)
        assert set(_exported(second)[0]) == served(second)
        assert served(first) | served(second) == {(name, "t") for name in names}
