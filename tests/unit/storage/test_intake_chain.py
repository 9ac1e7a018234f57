"""Sealing a chain beside the run that adds to it, in many interleavings, with lost answers and late requests."""

import random
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing

from kafscale import paths
from kafscale.errors import KafscaleError, Unavailable
from kafscale.intake.format import Entry, IntakeObject, Kind, encode, parse
from kafscale.intake.listing import WINDOW, Span
from kafscale.objects.interface import PreconditionFailed
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from services.storage.intake.chain import Chain, DamagedChain
from tests.support.samples.intake import ORDERS, RUN, entries
from tests.support.scheduling import run

NS = "ns"


def _chain(store: MemoryObjectStore) -> Chain:
    return Chain(store, NS, RUN, now_ms=lambda: 0)


def _entry(number: int) -> Entry:
    return Entry(ORDERS, 1, number, number + 1, entries()[0].batches)


class _Run:
    """A run that puts one record in each object, and moves its checkpoint and deletes at random."""

    def __init__(self, store: MemoryObjectStore, dice: random.Random) -> None:
        self.store = store
        self.dice = dice
        self.stored: set[int] = set()
        self.checkpoint = 1
        self.acknowledged = 0
        self.is_sealed = trio.Event()
        self._changed = trio.Event()

    async def run(self, count: int) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop, nursery.cancel_scope)
            for number in range(1, count + 1):
                while self.counted < number - WINDOW:
                    await self._changed.wait()
                nursery.start_soon(self._put, number, self.checkpoint)
                await trio.sleep(self.dice.random() * 0.02)
            await trio.sleep_forever()

    @property
    def counted(self) -> int:
        number = self.checkpoint - 1
        while number + 1 in self.stored:
            number += 1
        return number

    async def _stop(self, scope: trio.CancelScope) -> None:
        await self.is_sealed.wait()
        scope.cancel()

    async def _put(self, number: int, checkpoint: int) -> None:
        key = paths.intake_key(NS, RUN, number)
        body = b"".join(encode(NS, RUN, number=number, checkpoint=checkpoint, created_ms=0, entries=[_entry(number)]))
        while True:
            try:
                await self.store.put_if_absent(key, body)
            except PreconditionFailed:
                if (await self.store.get(key)).body != body:
                    self.is_sealed.set()
                    return
            except Unavailable:
                continue
            break
        self.stored.add(number)
        self.acknowledged = max(self.acknowledged, self.counted)
        self._changed.set()
        self._changed = trio.Event()
        if self.counted >= number:
            await self.store.delete_many(paths.intake_key(NS, RUN, below) for below in range(1, checkpoint))
        if self.dice.random() < 0.3:
            self.checkpoint = max(self.checkpoint, self.dice.randint(self.checkpoint, self.counted + 1))


def _faults(dice: random.Random) -> Callable[[Call], Fault]:
    def plan(call: Call) -> Fault:
        if call.kind == "put_if_absent" and dice.random() < 0.2:
            applied = dice.choice(("never", "before"))
            return Fault(delay=dice.random() * 0.1, error=Unavailable("no answer"), applied=applied)  # type: ignore[arg-type]
        return Fault(delay=dice.random() ** 4 * 0.3)

    return plan


async def _seal_until_done(chain: Chain, ends: list[Span]) -> None:
    while True:
        try:
            ends.append(await chain.seal())
            return
        except Unavailable:
            continue


async def _read(chain: Chain, span: Span) -> list[IntakeObject]:
    return [found async for found in chain.read(span)]


async def _story(seed: int) -> None:
    dice = random.Random(seed)
    store = MemoryObjectStore(_faults(dice))
    process, chain, ends = _Run(store, dice), _chain(store), list[Span]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run, 300)
        await trio.sleep(dice.random())
        async with trio.open_nursery() as sealing:
            for _ in range(dice.randint(1, 3)):
                sealing.start_soon(_seal_until_done, chain, ends)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    store.plan = None
    final = await chain.seal()
    assert {end.end for end in ends} == {final.end}, "all who sealed found the same end"
    assert process.acknowledged < final.end, "what was acknowledged counts"
    assert final.start <= final.end
    numbers = [found.header.number for found in await _read(chain, final)]
    assert numbers == list(range(final.start, final.end)), "all that counts can be read"


def test_all_who_seal_agree_on_an_end_above_everything_acknowledged() -> None:
    for seed in range(150):
        run(seed, partial(_story, seed))


async def _put(store: MemoryObjectStore, number: int, checkpoint: int = 1) -> None:
    body = b"".join(encode(NS, RUN, number=number, checkpoint=checkpoint, created_ms=0, entries=[_entry(number)]))
    await store.put_if_absent(paths.intake_key(NS, RUN, number), body)


async def test_a_chain_that_never_began_is_sealed_at_its_first_number() -> None:
    store = MemoryObjectStore()
    assert await _chain(store).seal() == Span(1, 1)
    assert parse((await store.get(paths.intake_key(NS, RUN, 1))).body).header.kind is Kind.SEAL


async def test_a_missing_object_that_the_run_knew_to_be_stored_is_damage_and_seals_nothing() -> None:
    store = MemoryObjectStore()
    for number in (1, 2, 3 + WINDOW):
        await _put(store, number)
    for read in (_chain(store).seal, _chain(store).checked_span):
        with pytest.raises(DamagedChain, match="object 3 of the intake"):
            await read()
    assert len(await store.list_from("")) == 3


async def test_an_object_that_the_run_had_not_finished_ends_the_chain() -> None:
    store = MemoryObjectStore()
    for number in (1, 2, 2 + WINDOW):
        await _put(store, number)
    assert await _chain(store).seal() == Span(1, 3)


async def test_a_damaged_object_is_reported_with_its_key() -> None:
    store = MemoryObjectStore()
    key = paths.intake_key(NS, RUN, 1)
    await store.put_if_absent(key, b"x" * 500)
    with pytest.raises(DamagedChain, match=key):
        await _chain(store).span()


async def test_objects_below_the_newest_checkpoint_are_not_needed() -> None:
    store = MemoryObjectStore()
    for number, checkpoint in ((5, 3), (6, 5), (7, 5)):
        await _put(store, number, checkpoint)
    chain = _chain(store)
    assert await chain.span() == Span(5, 8)
    with pytest.raises(KafscaleError):
        await _read(chain, Span(4, 8))
