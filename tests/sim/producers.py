"""Simulated producers, with the rules of real ones for retries, order and sequences, which report to the checker.

The idempotent producer works like the Java client, with five requests in flight and retries one at a time in order. It
gives up batches after the delivery timeout. When all requests in flight are settled, a new epoch starts at sequence 0.
"""

import math
from collections import deque

import trio
from kio.schema.errors import ErrorCode

from services.storage.log.producers import REMEMBERED_BATCHES
from tests.sim import wire
from tests.sim.batches import IN_FLIGHT, REQUEST_SECONDS, RETRY_SECONDS, Batch, Source
from tests.sim.client import Connection, ConnectionLost, Pending, connected
from tests.sim.plain_producers import PlainProducer
from tests.sim.view import SMALL_SKEW_SECONDS, Partition, View
from tests.support.checker import IDEMPOTENT, LEADER, REPEATED, UNANSWERED, UNREPEATED, Promise

_ENDLESS = 1 << 20
_LONG = 60.0
"""Longer than the silence of any producer, in seconds."""


class IdempotentProducer:
    """A producer with enable.idempotence=true.

    If partitions forget producers soon, or remove records, it may be silent for a while and then continue.
    """

    def __init__(self, view: View, partition: Partition, name: str) -> None:
        self._view = view
        self._faults = view.faults
        self._partition = partition
        self.name = name
        self._source = Source(view, partition, name, IDEMPOTENT)
        # Shorter than the time for which partitions remember producers.
        self._delivery_seconds = view.faults.one_of([2.0] if view.producer_expiry < _LONG else [2.0, 6.0, 60.0])
        # Some producers stop after a while, so that no later request helps an unanswered one.
        self._most_batches = view.faults.one_of([2, 8, _ENDLESS, _ENDLESS])
        silence = view.faults.one_of([0.0, 0.0, 0.4, 1.5]) if view.producer_expiry < _LONG else 0.0
        self._silence = silence * view.producer_expiry
        if partition.loses_records and not self._silence:
            # Long enough for its records to be removed.
            self._silence = view.faults.one_of([0.0, 2.0])
        self._making = True
        self._pause = view.faults.one_of([0.08, 0.2, 0.4])
        self._producer_id = -1
        self._epoch = 0
        self._next_sequence = 0
        self._last_acked_offset = -1
        # In the order of sequences: batches in flight or to be retried, and batches that were never sent.
        self._incomplete: deque[Batch] = deque()
        self._fresh: deque[Batch] = deque()
        self._flying: set[Batch] = set()
        self._given_up = False
        # The partition has forgotten this producer, so retries use a new epoch.
        self._forgotten = False
        # The time of the last acked batch.
        self._used_at = -math.inf
        self._begun = 0
        self._changed = trio.Event()
        self._connection: Connection | None = None
        self.done = False

    async def run(self) -> None:
        """Produce until the view stops producers and everything is settled, or the topic is deleted."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._make)
            while not self.done and not self._partition.gone:
                try:
                    async with connected(self._view.gateways, self._faults) as connection:
                        self._connection = connection
                        if self._producer_id < 0:
                            await self._take_id(connection)
                        await self._send_all(connection)
                except* ConnectionLost:
                    pass
                await trio.sleep(RETRY_SECONDS)
            self.done = True
            nursery.cancel_scope.cancel()

    async def _make(self) -> None:
        if self._silence:
            await self._make_batches(2)
            while self._incomplete or self._fresh:  # noqa: ASYNC110
                await trio.sleep(RETRY_SECONDS)
            self._view.trace(self.name, f"is silent for {self._silence:g} s")
            await trio.sleep(self._silence)
            await self._make_batches(2, late=True)
        await self._make_batches(self._most_batches)
        self._making = False

    async def _make_batches(self, most: int, *, late: bool = False) -> None:
        while (self._view.producing or late) and not self._partition.gone and most:
            await trio.sleep(self._faults.dice.expovariate(1 / self._pause))
            if len(self._fresh) < IN_FLIGHT:
                most -= 1
                batch = Batch(self._source.batch(), trio.current_time() + self._delivery_seconds)
                self._fresh.append(batch)
                self._wake()

    async def _take_id(self, connection: Connection) -> None:
        body = wire.request(
            wire.INIT_PRODUCER_ID,
            transactional_id=None,
            transaction_timeout=wire.milliseconds(60_000),
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = wire.response(wire.INIT_PRODUCER_ID, await connection.ask(wire.INIT_PRODUCER_ID, body, timeout=2.0))
        if answer.error_code != ErrorCode.none:
            raise ConnectionLost
        self._producer_id, self._epoch, self._next_sequence = int(answer.producer_id), int(answer.producer_epoch), 0

    async def _send_all(self, connection: Connection) -> None:
        async with trio.open_nursery() as nursery:
            while not connection.lost and not self._partition.gone:
                self._give_up_old()
                batch = self._next()
                if batch is not None:
                    batch.sent_at = min(batch.sent_at, trio.current_time())
                    self._flying.add(batch)
                    self._source.sends(batch, connection)
                    records = self._source.records(batch, self._producer_id)
                    body = wire.produce(
                        self._partition.topic_id, self._partition.index, records, acks=-1, timeout_ms=900
                    )
                    nursery.start_soon(self._settle, batch, connection.send(wire.PRODUCE, body))
                    continue
                if not self._making and not self._view.producing and not self._incomplete and not self._fresh:
                    self.done = True
                    break
                with trio.move_on_after(0.1):
                    await self._changed.wait()
                self._changed = trio.Event()
            nursery.cancel_scope.deadline = trio.current_time() + (0 if connection.lost else REQUEST_SECONDS)

    def _next(self) -> Batch | None:
        """Return the next batch to send. A batch is only retried when all batches before it are settled."""
        now = trio.current_time()
        if len(self._flying) >= IN_FLIGHT or (self._forgotten and self._flying):
            return None
        if self._forgotten:
            self._begin_next_epoch("was forgotten")
        again = next((batch for batch in self._incomplete if batch not in self._flying), None)
        if again is not None:
            return again if again is self._incomplete[0] and again.retry_at <= now else None
        if self._given_up:
            if self._incomplete:
                return None
            # All requests in flight are settled, so no unknown batch of the old epoch can arrive anymore.
            self._begin_next_epoch("gave up a batch")
        if not self._fresh:
            return None
        batch = self._fresh.popleft()
        self._begun += 1
        batch.epoch, batch.sequence, batch.number = self._epoch, self._next_sequence, self._begun
        self._next_sequence += len(batch.values)
        self._incomplete.append(batch)
        return batch

    def _begin_next_epoch(self, why: str) -> None:
        self._forgotten = self._given_up = False
        self._epoch, self._next_sequence = self._epoch + 1, 0
        self._view.trace(self.name, f"{why} and begins epoch {self._epoch}")
        for batch in self._incomplete:
            batch.epoch, batch.sequence = self._epoch, self._next_sequence
            self._next_sequence += len(batch.values)

    def _give_up_old(self) -> None:
        if self._view.at_ease:
            # All remaining batches must be acked now.
            return
        now = trio.current_time()
        while self._fresh and self._fresh[0].give_up_at <= now:
            self._fresh.popleft()
        for batch in [b for b in self._incomplete if b.give_up_at <= now and b not in self._flying]:
            self._drop(batch, "not delivered in time")

    def _drop(self, batch: Batch, why: str) -> None:
        if batch in self._incomplete:
            self._view.trace(self.name, f"gives up {batch.sequence}: {why}")
            self._incomplete.remove(batch)
            self._given_up = True

    async def _settle(self, batch: Batch, pending: Pending) -> None:
        try:
            answer = wire.read_produced(await pending.answer(REQUEST_SECONDS))
            self._answered(batch, answer)
        except ConnectionLost:
            pass
        finally:
            self._flying.discard(batch)
            batch.retry_at = trio.current_time() + RETRY_SECONDS
            self._wake()

    def _answered(self, batch: Batch, answer: wire.Produced) -> None:
        error = ErrorCode(answer.error)
        if batch not in self._incomplete:
            return
        if error in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            self._incomplete.remove(batch)
            self._used_at = max(self._used_at, batch.sent_at)
            self._source.acked(batch, answer.base_offset)
            self._last_acked_offset = max(self._last_acked_offset, answer.base_offset)
            return
        self._view.trace(self.name, f"{batch.sequence} was answered with {error.name} {answer.message}")
        if error in (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id):
            self._out_of_order(batch, error, answer)
        elif not error.retriable:
            self._view.complain("refused", self._partition, f"{self.name}: {error.name} {answer.message}")
            self._drop(batch, error.name)

    def _out_of_order(self, batch: Batch, error: ErrorCode, answer: wire.Produced) -> None:
        if self._given_up:
            # A batch before it was never delivered, so this one cannot be delivered either.
            self._drop(batch, error.name)
        elif batch is self._incomplete[0]:
            # All batches before it are acked, so the partition must know this producer and, as in Kafka, its last
            # batches.
            if error is ErrorCode.unknown_producer_id and self._may_be_forgotten(batch):
                self._faults.counts["producer-forgotten"] += 1
                self._forgotten = True
                return
            if self._begun - batch.number < REMEMBERED_BATCHES:
                self._view.complain("sequence-forgotten", self._partition, f"{self.name}: {answer.message}")
            self._drop(batch, error.name)

    def _may_be_forgotten(self, batch: Batch) -> bool:
        """Return whether it was silent for long, or its batches are lost.

        False while a batch is retried, because it may be in the log already.
        """
        if self._partition.objects_lost:
            # The state of the producer was in them.
            return True
        now, expiry = trio.current_time(), self._view.producer_expiry - 2 * SMALL_SKEW_SECONDS
        return now - self._used_at >= expiry and now - batch.sent_at < expiry

    def _wake(self) -> None:
        self._changed.set()


KINDS = (IDEMPOTENT, IDEMPOTENT, IDEMPOTENT, REPEATED, UNREPEATED, LEADER, UNANSWERED)
ONCE = tuple(kind for kind in KINDS if kind.once)
"""Those whose records are in the log at most once, so that it is known which of two records of a key is the last."""


def producer(view: View, partition: Partition, name: str, promise: Promise) -> IdempotentProducer | PlainProducer:
    if promise is IDEMPOTENT:
        return IdempotentProducer(view, partition, name)
    return PlainProducer(view, partition, name, promise, by_name=view.faults.dice.random() < 0.4)
