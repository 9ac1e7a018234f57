"""Simulated producers: the rules of real ones for retries, order and sequences, and a checker that is told everything.

The idempotent one does as the Java client: five requests in flight, retries one at a time and in order, what was not
delivered in time is given up, and when all that was in flight is settled then, a new epoch begins with sequence 0.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import trio
from kio.schema.errors import ErrorCode

from kafscale.records.record import Record, build_batch
from services.storage.producers import REMEMBERED_BATCHES
from tests.sim import wire
from tests.sim.checker import IDEMPOTENT, LEADER, REPEATED, UNANSWERED, UNREPEATED, Promise
from tests.sim.client import Connection, ConnectionLost, Pending, connected
from tests.sim.view import Partition, View

_IN_FLIGHT = 5
_REQUEST_SECONDS = 1.2
_RETRY_SECONDS = 0.05
_ENDLESS = 1 << 20


@dataclass(slots=True, eq=False)
class _Batch:
    values: list[bytes]
    give_up_at: float
    sequence: int = -1
    epoch: int = -1
    number: int = 0
    sent: bool = False
    retry_at: float = 0.0


@dataclass(slots=True)
class _Source:
    """Makes a producer's records."""

    view: View
    partition: Partition
    name: str
    promise: Promise
    made: int = 0

    def batch(self) -> list[bytes]:
        dice = self.view.faults.dice
        values = []
        for _ in range(dice.choice([1, 1, 2, 4])):
            self.made += 1
            padding = b"." * dice.choice([0, 20, 100, 400])
            values.append(b"%s/%d/%s" % (self.name.encode(), self.made, padding))
        for value in values:
            self.view.stamp(self.partition, value)
            self.view.sent(self.name, self.partition, value, self.promise)
        return values

    def records(self, batch: _Batch, producer_id: int = -1) -> bytes:
        return build_batch(
            [Record(i, self.view.time_of(value), None, value) for i, value in enumerate(batch.values)],
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
        )

    def sends(self, batch: _Batch, connection: Connection) -> None:
        names = b" ".join(value[: value.rfind(b"/")] for value in batch.values).decode()
        self.view.trace(self.name, f"sends {names} on connection {connection.number}")

    def acked(self, batch: _Batch, base_offset: int) -> None:
        for i, value in enumerate(batch.values):
            offset = base_offset + i if base_offset >= 0 else -1
            self.view.acked(self.partition, value, offset, durable=self.promise.durable)


class IdempotentProducer:
    """enable.idempotence=true."""

    def __init__(self, view: View, partition: Partition, name: str) -> None:
        self._view = view
        self._faults = view.faults
        self._partition = partition
        self.name = name
        self._source = _Source(view, partition, name, IDEMPOTENT)
        self._delivery_seconds = view.faults.one_of([2.0, 6.0, 60.0])
        # Few write a while and then fall silent, so that nothing that comes later helps what is not answered.
        self._most_batches = view.faults.one_of([2, 8, _ENDLESS, _ENDLESS])
        self._pause = view.faults.one_of([0.08, 0.2, 0.4])
        self._producer_id = -1
        self._epoch = 0
        self._next_sequence = 0
        self._last_acked_offset = -1
        # In the order of sequences: in flight or to be sent again; and what was never sent.
        self._incomplete: deque[_Batch] = deque()
        self._fresh: deque[_Batch] = deque()
        self._flying: set[_Batch] = set()
        self._given_up = False
        self._begun = 0
        self._changed = trio.Event()
        self._connection: Connection | None = None
        self.done = False

    async def run(self) -> None:
        """Produce until the world says that it is enough and everything is settled, or the topic is gone."""
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
                await trio.sleep(_RETRY_SECONDS)
            self.done = True
            nursery.cancel_scope.cancel()

    async def _make(self) -> None:
        while self._view.producing and not self._partition.gone and self._most_batches:
            await trio.sleep(self._faults.dice.expovariate(1 / self._pause))
            if len(self._fresh) < _IN_FLIGHT:
                self._most_batches -= 1
                batch = _Batch(self._source.batch(), trio.current_time() + self._delivery_seconds)
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
                    batch.sent = True
                    self._flying.add(batch)
                    self._source.sends(batch, connection)
                    records = self._source.records(batch, self._producer_id)
                    body = wire.produce(
                        self._partition.topic_id, self._partition.index, records, acks=-1, timeout_ms=900
                    )
                    nursery.start_soon(self._settle, batch, connection.send(wire.PRODUCE, body))
                    continue
                if not self._view.producing and not self._incomplete and not self._fresh:
                    self.done = True
                    break
                with trio.move_on_after(0.1):
                    await self._changed.wait()
                self._changed = trio.Event()
            nursery.cancel_scope.deadline = trio.current_time() + (0 if connection.lost else _REQUEST_SECONDS)

    def _next(self) -> _Batch | None:
        """What may be sent now; a batch that was sent before only when all before it are settled."""
        now = trio.current_time()
        if len(self._flying) >= _IN_FLIGHT:
            return None
        again = next((batch for batch in self._incomplete if batch not in self._flying), None)
        if again is not None:
            return again if again is self._incomplete[0] and again.retry_at <= now else None
        if self._given_up:
            if self._incomplete:
                return None
            # All that was in flight is settled: nothing of the old epoch can come any more that is not known.
            self._given_up = False
            self._epoch, self._next_sequence = self._epoch + 1, 0
            self._view.trace(self.name, f"begins epoch {self._epoch}")
        if not self._fresh:
            return None
        batch = self._fresh.popleft()
        self._begun += 1
        batch.epoch, batch.sequence, batch.number = self._epoch, self._next_sequence, self._begun
        self._next_sequence += len(batch.values)
        self._incomplete.append(batch)
        return batch

    def _give_up_old(self) -> None:
        if self._view.at_ease:
            # Whatever is kept must be acked now.
            return
        now = trio.current_time()
        while self._fresh and self._fresh[0].give_up_at <= now:
            self._fresh.popleft()
        for batch in [b for b in self._incomplete if b.give_up_at <= now and b not in self._flying]:
            self._drop(batch, "not delivered in time")

    def _drop(self, batch: _Batch, why: str) -> None:
        if batch in self._incomplete:
            self._view.trace(self.name, f"gives up {batch.sequence}: {why}")
            self._incomplete.remove(batch)
            self._given_up = True

    async def _settle(self, batch: _Batch, pending: Pending) -> None:
        try:
            answer = wire.read_produced(await pending.answer(_REQUEST_SECONDS))
            self._answered(batch, answer)
        except ConnectionLost:
            pass
        finally:
            self._flying.discard(batch)
            batch.retry_at = trio.current_time() + _RETRY_SECONDS
            self._wake()

    def _answered(self, batch: _Batch, answer: wire.Produced) -> None:
        error = ErrorCode(answer.error)
        if batch not in self._incomplete:
            return
        if error in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            self._incomplete.remove(batch)
            self._source.acked(batch, answer.base_offset)
            self._last_acked_offset = max(self._last_acked_offset, answer.base_offset)
            return
        self._view.trace(self.name, f"{batch.sequence} is answered {error.name} {answer.message}")
        if error in (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id):
            self._out_of_order(batch, error, answer)
        elif not error.retriable:
            self._view.complain("refused", self._partition, f"{self.name}: {error.name} {answer.message}")
            self._drop(batch, error.name)

    def _out_of_order(self, batch: _Batch, error: ErrorCode, answer: wire.Produced) -> None:
        if self._given_up:
            # Something before it was never delivered: this one cannot be either.
            self._drop(batch, error.name)
        elif batch is self._incomplete[0]:
            # Everything before it is acked, so that the partition must know this producer; of its batches, as in
            # Kafka, the last ones.
            if self._begun - batch.number < REMEMBERED_BATCHES:
                self._view.complain("sequence-forgotten", self._partition, f"{self.name}: {answer.message}")
            self._drop(batch, error.name)

    def _wake(self) -> None:
        self._changed.set()


class PlainProducer:
    """Without idempotence: acks=all, retried one by one, or sent once on one connection; or acks=1 or 0, sent once.

    ``by_name``: it names its topic as older clients do, and ends when somebody wants that deleted.
    """

    def __init__(self, view: View, partition: Partition, name: str, promise: Promise, *, by_name: bool = False) -> None:
        self._view = view
        self._faults = view.faults
        self._partition = partition
        self.name = name
        self._promise = promise
        self._by_name = by_name
        self._topic: wire.Topic = partition.topic if by_name else partition.topic_id
        self._version = wire.BY_NAME if by_name else 0
        self._lives = 0
        self._pause = view.faults.one_of([0.08, 0.2, 0.4])
        self.done = False

    @property
    def _gone(self) -> bool:
        # What is on its way by a name may get to the next topic of that name.
        return self._partition.gone or (self._by_name and (self._partition.condemned or self._partition.doomed))

    async def run(self) -> None:
        while self._view.producing and not self._gone:
            if self._promise is REPEATED:
                await self._one_by_one()
            else:
                await self._one_life()
            await trio.sleep(_RETRY_SECONDS)
        self.done = True

    async def _one_by_one(self) -> None:
        source = _Source(self._view, self._partition, f"{self.name}-{self._lives}", self._promise)
        self._lives += 1
        batch: _Batch | None = None
        while (self._view.producing or batch is not None) and not self._gone:
            try:
                async with connected(self._view.gateways, self._faults) as connection:
                    while (self._view.producing or batch is not None) and not self._gone:
                        if batch is None:
                            await trio.sleep(self._faults.dice.expovariate(1 / self._pause))
                            if self._gone:
                                break
                            batch = _Batch(source.batch(), trio.current_time() + 4.0)
                        late = trio.current_time() > batch.give_up_at and not self._view.at_ease
                        if await self._sent(source, batch, connection) or late:
                            batch = None
                        else:
                            await trio.sleep(_RETRY_SECONDS)
            except* ConnectionLost:
                await trio.sleep(_RETRY_SECONDS)

    async def _sent(self, source: _Source, batch: _Batch, connection: Connection) -> bool:
        """Whether the batch is settled."""
        body = wire.produce(self._topic, self._partition.index, source.records(batch), acks=-1, timeout_ms=900)
        source.sends(batch, connection)
        answer = await connection.send(wire.PRODUCE, body, self._version).answer(_REQUEST_SECONDS)
        return self._answered(source, batch, wire.read_produced(answer, by_name=self._by_name))

    def _answered(self, source: _Source, batch: _Batch, answer: wire.Produced) -> bool:
        error = ErrorCode(answer.error)
        if self._partition.doomed and (self._by_name or self._partition.gone):
            # What is named so may be another topic by now.
            return True
        if error is ErrorCode.none:
            source.acked(batch, answer.base_offset)
            return True
        if not error.retriable:
            self._view.complain("refused", self._partition, f"{self.name}: {error.name} {answer.message}")
            return True
        return False

    async def _one_life(self) -> None:
        """Each record is sent once; the connection's end is this producer's."""
        source = _Source(self._view, self._partition, f"{self.name}-{self._lives}", self._promise)
        self._lives += 1
        flying = trio.CapacityLimiter(_IN_FLIGHT)
        try:
            async with connected(self._view.gateways, self._faults) as connection, trio.open_nursery() as nursery:
                while self._view.producing and not connection.lost and not self._gone:
                    await trio.sleep(self._faults.dice.expovariate(1 / self._pause))
                    if flying.available_tokens == 0 or connection.lost or self._gone:
                        continue
                    batch = _Batch(source.batch(), 0.0)
                    body = wire.produce(
                        self._topic,
                        self._partition.index,
                        source.records(batch),
                        acks=_ACKS[self._promise],
                        timeout_ms=900,
                    )
                    source.sends(batch, connection)
                    if self._promise is UNANSWERED:
                        connection.tell(wire.PRODUCE, body, self._version)
                        continue
                    flying.acquire_on_behalf_of_nowait(batch)
                    pending = connection.send(wire.PRODUCE, body, self._version)
                    nursery.start_soon(self._settle, source, batch, pending, flying)
                if connection.answered_unasked:
                    self._view.complain("refused", self._partition, f"{self.name}: a request with acks=0 is answered")
        except* ConnectionLost:
            pass

    async def _settle(self, source: _Source, batch: _Batch, pending: Pending, flying: trio.CapacityLimiter) -> None:
        try:
            answer = await pending.answer(_REQUEST_SECONDS)
            self._answered(source, batch, wire.read_produced(answer, by_name=self._by_name))
        except ConnectionLost:
            pass
        finally:
            flying.release_on_behalf_of(batch)


class WideProducer:
    """acks=all, each request once and for all of some partitions at the same time.

    When nothing fails any more it sends one more, and repeats that until all of it is acked.
    """

    def __init__(self, view: View, partitions: Sequence[Partition], name: str, requests: int) -> None:
        self._view = view
        self._partitions = partitions
        self._requests = requests
        self.name = name
        self.done = False

    @property
    def _gone(self) -> bool:
        return any(partition.gone for partition in self._partitions)

    async def run(self) -> None:
        for number in range(self._requests):
            await trio.sleep(self._view.faults.between(0.1, 1.0))
            if not self._view.producing or self._gone:
                break
            await self._send(self._made(f"{self.name}-{number}", UNREPEATED))
        while not self._view.at_ease:  # noqa: ASYNC110
            await trio.sleep(0.1)
        if not self._gone:
            last = self._made(f"{self.name}-last", REPEATED)
            while not self._gone and not await self._send(last):  # noqa: ASYNC110
                await trio.sleep(_RETRY_SECONDS)
        self.done = True

    def _made(self, name: str, promise: Promise) -> list[tuple[_Source, _Batch]]:
        sources = [_Source(self._view, partition, name, promise) for partition in self._partitions]
        return [(source, _Batch(source.batch(), 0.0)) for source in sources]

    async def _send(self, batches: Sequence[tuple[_Source, _Batch]]) -> bool:
        """Whether all was acked by one answer."""
        appends: list[tuple[wire.Topic, int, bytes]] = [
            (source.partition.topic_id, source.partition.index, source.records(batch)) for source, batch in batches
        ]
        acked = 0
        try:
            async with connected(self._view.gateways, self._view.faults) as connection:
                body = wire.produce_many(appends, acks=-1, timeout_ms=900)
                answers = wire.read_produced_many(await connection.ask(wire.PRODUCE, body, timeout=_REQUEST_SECONDS))
                for (source, batch), answer in zip(batches, answers, strict=True):
                    error = ErrorCode(answer.error)
                    if error is ErrorCode.none:
                        source.acked(batch, answer.base_offset)
                        acked += 1
                    elif not error.retriable:
                        detail = f"{self.name}: {error.name} {answer.message}"
                        self._view.complain("refused", source.partition, detail)
        except* ConnectionLost:
            pass
        return acked == len(batches)


KINDS = (IDEMPOTENT, IDEMPOTENT, IDEMPOTENT, REPEATED, UNREPEATED, LEADER, UNANSWERED)
_ACKS = {UNREPEATED: -1, LEADER: 1, UNANSWERED: 0}


def producer(view: View, partition: Partition, name: str, promise: Promise) -> IdempotentProducer | PlainProducer:
    if promise is IDEMPOTENT:
        return IdempotentProducer(view, partition, name)
    return PlainProducer(view, partition, name, promise, by_name=view.faults.dice.random() < 0.4)
