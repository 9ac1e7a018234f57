"""Appends of a gateway in the same process."""

from collections.abc import Callable
from dataclasses import dataclass

import trio
from trio.testing import MockClock

from kafscale.objects.memory import Fault
from kafscale.records.batch import BatchHeader, walk
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import PartitionAppend, PartitionAppended
from services.storage.log.partition import CommitEvent
from services.storage.methods.append import Appended, append_at_once
from tests.support.storage.harness import Caller, World, batch, siblings


@dataclass
class _Append:
    key: tuple[bytes, int]
    records: bytes
    unacknowledged: bool = False
    trace: str = ""

    @property
    def batches(self) -> list[tuple[int, BatchHeader]]:
        return list(walk(self.records))


@dataclass
class _Message:
    stream_id: str
    sequence: int
    seen: int
    appends: list[_Append]


def _at_once(
    caller: Caller,
    *refs: PartitionRef,
    sequence: int,
    stream_id: str | None = None,
    value: bytes = b"at once",
    report: Callable[[CommitEvent], bool] = lambda _: False,
) -> list[Appended] | None:
    message = _Message(
        stream_id=caller.stream_id if stream_id is None else stream_id,
        sequence=sequence,
        seen=sequence - 1,
        appends=[_Append((ref.topic_id, ref.partition), batch(value)) for ref in refs],
    )
    return append_at_once(caller.service, message, report)


async def test_an_append_that_would_have_to_wait_is_not_begun(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        here, elsewhere = siblings(await world.topic(catalog), 2)
        assert (await caller.append(here, batch(b"first"))).status == Status.OK
        # Not its turn, in both directions; an unknown stream; a partition that is not taken over.
        assert _at_once(caller, here, sequence=1) is None
        assert _at_once(caller, here, sequence=3) is None
        assert _at_once(caller, here, sequence=2, stream_id="unknown") is None
        assert _at_once(caller, here, elsewhere, sequence=2) is None
        results = _at_once(caller, here, sequence=2)
        assert results is not None
        (appended,) = results
        assert (appended.status, appended.base_offset) == (Status.OK, 1)
        caller.sequence = 2
        assert await caller.durable(PartitionAppended(**appended._asdict()), here)
        assert await caller.read_all(here) == [b"first", b"at once"]
        # The take-over did not begin either.
        assert (await caller.append(elsewhere, batch(b"later"))).base_offset == 0


async def test_a_refusal_at_once_refuses_what_was_sent_behind_it(autojump_clock: MockClock) -> None:
    async with (world := World()).service(partition_buffer_bytes=4 << 20) as (caller, catalog):
        ref = await world.topic(catalog)
        assert (await caller.append(ref, batch(b"first"))).status == Status.OK
        results = _at_once(caller, ref, sequence=2, value=bytes(5 << 20))
        assert results is not None
        assert [result.status for result in results] == [Status.TOO_LARGE]
        caller.sequence = 2
        (behind,) = (await caller.send(PartitionAppend(partition=ref, records=batch(b"x")), seen=1)).results
        assert behind.status == Status.REFUSED_BEHIND


async def test_nothing_is_appended_at_once_while_a_tail_is_recovered(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False, segment_interval_ms=10_000) as (caller, catalog):
        ref = await world.topic(catalog)
        for value in (b"first", b"second"):
            assert await caller.durable(await caller.append(ref, batch(value)))
    await trio.sleep(60)
    async with world.service() as (caller, _):
        world.objects.plan = lambda call: Fault(delay=10) if call.key.endswith(".kfs") else None
        await caller.fetch(ref, 0)
        assert _at_once(caller, ref, sequence=1) is None
        await trio.sleep(30)
        results = _at_once(caller, ref, sequence=1)
        assert results is not None
        assert [result.base_offset for result in results] == [2]


async def test_the_stream_sends_only_the_events_that_the_caller_does_not_take(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
        taken = list[int]()

        def report(event: CommitEvent) -> bool:
            if event.high_watermark <= 2:
                taken.append(event.high_watermark)
            return event.high_watermark <= 2

        for sequence in (2, 3):
            assert _at_once(caller, ref, sequence=sequence, report=report) is not None
            await trio.sleep(1)
        assert set(taken) == {2}
        assert {event.high_watermark for event in caller.news if event.high_watermark >= 2} == {3}
