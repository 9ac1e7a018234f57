"""aiokafka: each call runs its own asyncio loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiokafka
from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.clients.interface import (
    LARGEST_REQUEST,
    LINGER_MS,
    PLAIN,
    TIMEOUT_SECONDS,
    Abilities,
    ClientError,
    Message,
    ProduceOptions,
    Received,
)

T = TypeVar("T")


class AiokafkaClient:
    name = "aiokafka"
    # It has no setting for auto-creation, and encodes header values as bytes only.
    abilities = Abilities(null_headers=False)

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=dict(configs or {}))
        _run(self._admin("create_topics", [new]))

    def delete_topic(self, topic: str) -> None:
        _run(self._admin("delete_topics", [topic]))

    async def _admin(self, call: str, *arguments: object) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            reply = await getattr(admin, call)(*arguments)
        finally:
            await admin.close()
        entries = reply.topic_errors if call == "create_topics" else reply.topic_error_codes
        for entry in entries:
            if entry[1]:
                raise ClientError(entry[1], str(entry))

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int] | None:
        return _run(self._produce(topic, messages, options))

    async def _produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions) -> list[int] | None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks=options.acks if options.acks == "all" else int(options.acks),
            compression_type=None if options.codec == "none" else options.codec,
            linger_ms=LINGER_MS,
            max_batch_size=LARGEST_REQUEST // 16,
            max_request_size=LARGEST_REQUEST,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=options.partition,
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            await producer.flush()
            acks = [await future for future in sent]
            return None if options.acks == "0" else [ack.offset for ack in acks]
        finally:
            await producer.stop()

    @asynccontextmanager
    async def _consumer(self, topic: str, partition: int) -> AsyncIterator[tuple[Any, Any]]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="none",
            enable_auto_commit=False,
            fetch_max_bytes=LARGEST_REQUEST,
        )
        await consumer.start()
        try:
            where = aiokafka.TopicPartition(topic, partition)
            consumer.assign([where])
            yield consumer, where
        finally:
            await consumer.stop()

    def consume(self, topic: str, *, count: int, offset: int | None = None, partition: int = 0) -> list[Received]:
        return _run(self._consume(topic, count, offset, partition))

    async def _consume(self, topic: str, count: int, offset: int | None, partition: int) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        async with self._consumer(topic, partition) as (consumer, where):
            if offset is None:
                await consumer.seek_to_beginning(where)
            else:
                consumer.seek(where, offset)
            while len(received) < count and time.monotonic() < deadline:
                polled = await consumer.getmany(where, timeout_ms=200, max_records=count - len(received))
                for records in polled.values():
                    received += [_received(record) for record in records]
        return received

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        return _run(self._offset_for_time(topic, timestamp, partition))

    async def _offset_for_time(self, topic: str, timestamp: int, partition: int) -> int | None:
        async with self._consumer(topic, partition) as (consumer, where):
            found = (await consumer.offsets_for_times({where: timestamp}))[where]
        return None if found is None or found.offset < 0 else int(found.offset)

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        return _run(self._offsets(topic, partition))

    async def _offsets(self, topic: str, partition: int) -> tuple[int, int]:
        async with self._consumer(topic, partition) as (consumer, where):
            first = await consumer.beginning_offsets([where])
            end = await consumer.end_offsets([where])
        return first[where], end[where]

    def close(self) -> None:
        pass


def _run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, 2 * TIMEOUT_SECONDS)

    try:
        return asyncio.run(bounded())
    except errors.BrokerResponseError as error:
        raise ClientError(error.errno, str(error)) from error


def _received(record: Any) -> Received:
    return Received(
        offset=record.offset,
        timestamp=record.timestamp,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
    )
