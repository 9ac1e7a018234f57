"""Simulated producers without idempotence."""

from collections.abc import Sequence

import trio
from kio.schema.errors import ErrorCode

from tests.sim import wire
from tests.sim.batches import IN_FLIGHT, REQUEST_SECONDS, RETRY_SECONDS, Batch, Source
from tests.sim.client import Connection, ConnectionLost, Pending, connected
from tests.sim.view import Partition, View
from tests.support.checker import LEADER, REPEATED, UNANSWERED, UNREPEATED, Promise

_ACKS = {UNREPEATED: -1, LEADER: 1, UNANSWERED: 0}


class PlainProducer:
    """Sends with acks=all and retries one by one, or once on one connection with acks=all, 1 or 0.

    With ``by_name`` it names its topic like older clients, and ends when the deletion of the topic is requested.
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
        # A request by name in flight may reach the next topic of that name.
        return self._partition.gone or (self._by_name and (self._partition.condemned or self._partition.doomed))

    async def run(self) -> None:
        while self._view.producing and not self._gone:
            if self._promise is REPEATED:
                await self._one_by_one()
            else:
                await self._one_life()
            await trio.sleep(RETRY_SECONDS)
        self.done = True

    async def _one_by_one(self) -> None:
        source = Source(self._view, self._partition, f"{self.name}-{self._lives}", self._promise)
        self._lives += 1
        batch: Batch | None = None
        while (self._view.producing or batch is not None) and not self._gone:
            try:
                async with connected(self._view.gateways, self._faults) as connection:
                    while (self._view.producing or batch is not None) and not self._gone:
                        if batch is None:
                            await trio.sleep(self._faults.dice.expovariate(1 / self._pause))
                            if self._gone:
                                break
                            batch = Batch(source.batch(), trio.current_time() + 4.0)
                        late = trio.current_time() > batch.give_up_at and not self._view.at_ease
                        if await self._sent(source, batch, connection) or late:
                            batch = None
                        else:
                            await trio.sleep(RETRY_SECONDS)
            except* ConnectionLost:
                await trio.sleep(RETRY_SECONDS)

    async def _sent(self, source: Source, batch: Batch, connection: Connection) -> bool:
        """Send a batch. Return whether it is settled."""
        body = wire.produce(self._topic, self._partition.index, source.records(batch), acks=-1, timeout_ms=900)
        source.sends(batch, connection)
        answer = await connection.send(wire.PRODUCE, body, self._version).answer(REQUEST_SECONDS)
        return self._answered(source, batch, wire.read_produced(answer, by_name=self._by_name))

    def _answered(self, source: Source, batch: Batch, answer: wire.Produced) -> bool:
        error = ErrorCode(answer.error)
        if self._partition.doomed and (self._by_name or self._partition.gone):
            # The name may belong to another topic by now.
            return True
        if error is ErrorCode.none:
            source.acked(batch, answer.base_offset)
            return True
        if not error.retriable:
            self._view.complain("refused", self._partition, f"{self.name}: {error.name} {answer.message}")
            return True
        return False

    async def _one_life(self) -> None:
        """Send each record once, until the connection ends."""
        source = Source(self._view, self._partition, f"{self.name}-{self._lives}", self._promise)
        self._lives += 1
        flying = trio.CapacityLimiter(IN_FLIGHT)
        try:
            async with connected(self._view.gateways, self._faults) as connection, trio.open_nursery() as nursery:
                while self._view.producing and not connection.lost and not self._gone:
                    await trio.sleep(self._faults.dice.expovariate(1 / self._pause))
                    if flying.available_tokens == 0 or connection.lost or self._gone:
                        continue
                    batch = Batch(source.batch(), 0.0)
                    body = wire.produce(
                        self._topic,
                        self._partition.index,
                        source.records(batch),
                        acks=_ACKS[self._promise],
                        timeout_ms=900,
                    )
                    source.sends(batch, connection)
                    if self._promise is UNANSWERED:
                        connection.send_only(wire.PRODUCE, body, self._version)
                        continue
                    flying.acquire_on_behalf_of_nowait(batch)
                    pending = connection.send(wire.PRODUCE, body, self._version)
                    nursery.start_soon(self._settle, source, batch, pending, flying)
                if connection.answered_unasked:
                    self._view.complain("refused", self._partition, f"{self.name}: a request with acks=0 was answered")
        except* ConnectionLost:
            pass

    async def _settle(self, source: Source, batch: Batch, pending: Pending, flying: trio.CapacityLimiter) -> None:
        try:
            answer = await pending.answer(REQUEST_SECONDS)
            self._answered(source, batch, wire.read_produced(answer, by_name=self._by_name))
        except ConnectionLost:
            pass
        finally:
            flying.release_on_behalf_of(batch)


class WideProducer:
    """Sends requests with acks=all for several partitions, once each.

    When the faults have stopped, it sends one more and repeats it until it is acked completely.
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
                await trio.sleep(RETRY_SECONDS)
        self.done = True

    def _made(self, name: str, promise: Promise) -> list[tuple[Source, Batch]]:
        sources = [Source(self._view, partition, name, promise) for partition in self._partitions]
        return [(source, Batch(source.batch(), 0.0)) for source in sources]

    async def _send(self, batches: Sequence[tuple[Source, Batch]]) -> bool:
        """Send batches in a request. Return whether one answer acked all of them."""
        appends: list[tuple[wire.Topic, int, bytes]] = [
            (source.partition.topic_id, source.partition.index, source.records(batch)) for source, batch in batches
        ]
        acked = 0
        try:
            async with connected(self._view.gateways, self._view.faults) as connection:
                body = wire.produce_many(appends, acks=-1, timeout_ms=900)
                answers = wire.read_produced_many(await connection.ask(wire.PRODUCE, body, timeout=REQUEST_SECONDS))
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
