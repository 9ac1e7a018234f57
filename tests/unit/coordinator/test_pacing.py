"""The write rate of one group is limited."""

from collections.abc import Sequence

import trio

from kafscale.metadata.interface import Operation, Put, TxnResult, Unchanged
from kafscale.metadata.memory import MemoryMetadataStore
from services.coordinator.pacing import Pacing
from tests.support.coordinator.harness import E
from tests.support.coordinator.shell import coordinators

RATE, BURST = 8_000, 128_000
OFFSETS = 300


class Counting(MemoryMetadataStore):
    """A metadata store that counts the bytes written to offsets."""

    written = 0

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        self.written += sum(len(o.value) for o in then if isinstance(o, Put) and "/offsets/" in o.key)
        return await super().txn(compares, then, otherwise)


async def test_only_a_group_that_writes_too_much_is_slowed_down(autojump_clock: object) -> None:
    store = Counting()
    async with (
        coordinators(store, "a:1", group_write_bytes_per_second=RATE, group_write_burst_bytes=BURST) as made,
        trio.open_nursery() as nursery,
    ):
        await made.commit({0: 0})
        acked = []

        async def commit_all_the_time(first: int) -> None:
            for number in range(first, 1_000, 4):
                reply = await made.commit(dict.fromkeys(range(OFFSETS), number))
                assert set(reply.errors) == {E.NONE}
                acked.append(number)

        for client in range(4):
            nursery.start_soon(commit_all_the_time, client)
        began = trio.current_time()
        await trio.sleep(60)
        assert store.written < BURST + 65 * RATE
        assert len(acked) > 2 * store.written / (OFFSETS * 50), "waiting commits share transactions"
        with trio.fail_after(0.5):
            await made.commit({0: 1}, "another")
        assert trio.current_time() < began + 61
        assert made.instances[0].deps.counters.delayed_writes > 10
        nursery.cancel_scope.cancel()


async def test_the_queue_of_a_slowed_down_group_leaves_room_for_others(autojump_clock: object) -> None:
    async with (
        coordinators(
            MemoryMetadataStore(),
            "a:1",
            group_write_bytes_per_second=RATE,
            group_write_burst_bytes=BURST,
            group_queue_bytes=800_000,
        ) as made,
        trio.open_nursery() as nursery,
    ):
        await made.commit(dict.fromkeys(range(4_000), 1))
        made.refusals.clear()
        for first in range(0, 100 * OFFSETS, OFFSETS):
            nursery.start_soon(made.commit, dict.fromkeys(range(first, first + OFFSETS), 2))
        await trio.sleep(1)
        assert made.instances[0].deps.counters.queued_bytes < 150_000
        assert set(made.refusals) == {E.COORDINATOR_NOT_AVAILABLE}, "clients retry"
        await made.commit({0: 1}, "another")
        nursery.cancel_scope.cancel()


def test_pacing_allows_a_burst_and_then_a_rate() -> None:
    pacing = Pacing(100, 1_000)
    pacing.wrote("g", 1_000, 50.0)
    assert pacing.wait("g", 50.0) == 0
    pacing.wrote("g", 200, 50.0)
    assert (pacing.wait("g", 50.0), pacing.wait("g", 51.0), pacing.wait("g", 52.0)) == (2, 1, 0)
    assert pacing.wait("other", 50.0) == 0
    pacing.wrote("g", 1_000, 100.0)
    assert pacing.wait("g", 100.0) == 0, "older writes no longer count"
