"""Spans of appends, intake objects and flushes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trio.testing import MockClock

from kafscale.tracing import Span
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import PartitionAppend
from tests.support.storage.harness import World
from tests.support.storage.sequences import numbered

PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class _FakeSpan:
    place: str

    def end(self, error: str = "") -> None:
        assert not error


@dataclass
class _FakeTracer:
    """A tracer that numbers its spans."""

    begun: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)

    def begin(self, name: str, **attributes: str | int) -> Span | None:
        raise AssertionError(name)

    def go_on(self, name: str, place: str, *, links: Sequence[str] = (), **attributes: str | int) -> Span | None:
        self.begun.append((name, place, tuple(links)))
        return _FakeSpan(f"{name} {len(self.begun)}")


async def test_a_batch_has_spans_of_append_intake_and_flush_and_its_duplicate_of_the_append(
    autojump_clock: MockClock,
) -> None:
    world = World()
    tracer = world.tracer = _FakeTracer()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        append = PartitionAppend(partition=ref, records=numbered(0), trace=PLACE)
        assert await caller.durable((await caller.send(append)).results[0])
        await caller.flush(ref)
        assert sorted(tracer.begun) == [("append", PLACE, ()), ("flush", "append 1", ()), ("intake", "append 1", ())]
    async with world.service() as (caller, _):
        # This run never buffered anything.
        (again,) = (await caller.send(append)).results
        assert (again.status, again.base_offset) == (Status.OK, 0)
        assert tracer.begun[3:] == [("append", PLACE, ())]


async def test_an_intake_object_has_a_span_for_its_own_batches_only(autojump_clock: MockClock) -> None:
    world = World()
    tracer = world.tracer = _FakeTracer()
    # An object has room for one batch.
    async with world.service(intake_object_bytes=1) as (caller, catalog):
        ref = await world.topic(catalog)
        appends = [PartitionAppend(partition=ref, records=numbered(i), trace=PLACE) for i in range(3)]
        results = (await caller.send(*appends)).results
        assert await caller.durable(results[2])
        spans = [(place, links) for name, place, links in tracer.begun if name == "intake"]
        assert spans == [("append 1", ()), ("append 2", ()), ("append 3", ())]
