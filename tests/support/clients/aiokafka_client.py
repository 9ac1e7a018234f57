"""aiokafka, in an asyncio loop that runs in a separate thread."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, TypeVar

import aiokafka
from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.support.clients.interface import (
    LARGEST_REQUEST,
    LINGER_MS,
    PLAIN,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    TIMEOUT_SECONDS,
    Abilities,
    ClientError,
    Member,
    Message,
    ProduceOptions,
    Received,
    Record,
    kafka_python_settings,
)

_ASSIGNORS = {
    RANGE: RangePartitionAssignor,
    ROUND_ROBIN: RoundRobinPartitionAssignor,
    STICKY: StickyPartitionAssignor,
}

T = TypeVar("T")


class _Loop:
    """A loop that runs in a thread, so that members keep running between calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * TIMEOUT_SECONDS)
        except errors.BrokerResponseError as error:
            raise ClientError(error.errno, str(error)) from error

    def do(self, call: Callable[..., None], *arguments: object) -> None:
        """Call a plain function in the loop's thread, because it changes what the loop's tasks use."""

        async def called() -> None:
            call(*arguments)

        self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AiokafkaClient:
    name = "aiokafka"
    version = aiokafka.__version__
    # It has no setting for auto-creation, and encodes header values as bytes only.
    abilities = Abilities(null_headers=False)
    idempotent = False
    assignors: Mapping[str, str] = {name: name for name in _ASSIGNORS}
    topic_configs: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {"delete_group": "its admin client cannot delete groups"}

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @cached_property
    def _loop(self) -> _Loop:
        return _Loop()

    def _admin(self, call: str, *arguments: object) -> Any:
        async def asked() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await getattr(admin, call)(*arguments)
            finally:
                await admin.close()

        return self._loop.run(asked())

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=dict(configs or {}))
        for entry in self._admin("create_topics", [new]).topic_errors:
            _check(entry[1], str(entry))

    def create_partitions(self, topic: str, total: int) -> None:
        self._admin("create_partitions", {topic: NewPartitions(total)})

    def delete_topic(self, topic: str) -> None:
        for entry in self._admin("delete_topics", [topic]).topic_error_codes:
            _check(entry[1], str(entry))

    def topics(self) -> set[str]:
        return set(self._admin("list_topics"))

    def partitions(self, topic: str) -> int:
        (described,) = self._admin("describe_topics", [topic])
        return len(described["partitions"])

    def configs(self, topic: str) -> dict[str, str | None]:
        (described,) = self._admin("describe_configs", [ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, message, _, _, entries),) = described.resources
        _check(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def alter_config(self, topic: str, name: str, value: str) -> None:
        for reply in self._admin("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})]):
            for code, message, *_ in reply.resources:
                _check(code, message)

    def groups(self) -> set[str]:
        return {one[0] for one in self._admin("list_consumer_groups")}

    def describe_group(self, group: str) -> tuple[str, int]:
        (described,) = self._admin("describe_consumer_groups", [group])
        ((code, _, state, _, _, members, *_),) = described.groups
        _check(code, group)
        return state.lower(), len(members)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        offsets = self._admin("list_consumer_group_offsets", group)
        return {of.partition: at.offset for of, at in offsets.items() if of.topic == topic}

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> Member:
        async def started() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=self._bootstrap, **settings)
            await consumer.start()
            return consumer

        settings: dict[str, Any]
        settings = kafka_python_settings(group, _ASSIGNORS, assignor=assignor, auto_commit=auto_commit, quick=quick)
        return _Member(self._loop, self._loop.run(started()), topic)

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int] | None:
        return self._loop.run(self._produce(topic, messages, options))

    async def _produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions) -> list[int] | None:
        settings: dict[str, Any] = {
            "acks": options.acks if options.acks == "all" else int(options.acks),
            "compression_type": None if options.codec == "none" else options.codec,
            "linger_ms": LINGER_MS,
            "max_batch_size": LARGEST_REQUEST // 16,
            "max_request_size": LARGEST_REQUEST,
        }
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, **({} if options.defaults else settings)
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
        return self._loop.run(self._consume(topic, count, offset, partition))

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
        return self._loop.run(self._offset_for_time(topic, timestamp, partition))

    async def _offset_for_time(self, topic: str, timestamp: int, partition: int) -> int | None:
        async with self._consumer(topic, partition) as (consumer, where):
            found = (await consumer.offsets_for_times({where: timestamp}))[where]
        return None if found is None or found.offset < 0 else int(found.offset)

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        return self._loop.run(self._offsets(topic, partition))

    async def _offsets(self, topic: str, partition: int) -> tuple[int, int]:
        async with self._consumer(topic, partition) as (consumer, where):
            first = await consumer.beginning_offsets([where])
            end = await consumer.end_offsets([where])
        return first[where], end[where]

    def close(self) -> None:
        if "_loop" in self.__dict__:
            self._loop.close()


def _check(code: int, message: str) -> None:
    if code:
        raise ClientError(code, message)


def _received(record: Any) -> Received:
    return Received(
        offset=record.offset,
        timestamp=record.timestamp,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
    )


class _Member:
    def __init__(self, loop: _Loop, consumer: Any, topic: str) -> None:
        self._loop = loop
        self._consumer = consumer
        self._topic = topic

    def _of(self, partition: int) -> aiokafka.TopicPartition:
        return aiokafka.TopicPartition(self._topic, partition)

    def poll(self, seconds: float) -> list[Record]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=int(1000 * seconds)))
        return [Record(one.partition, one.offset, one.value.decode()) for part in found.values() for one in part]

    def assigned(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        self._loop.run(self._consumer.commit({self._of(partition): offset for partition, offset in offsets.items()}))

    def seek(self, partition: int, offset: int) -> None:
        self._loop.do(self._consumer.seek, self._of(partition), offset)

    def pause(self, partition: int) -> None:
        self._loop.do(self._consumer.pause, self._of(partition))

    def resume(self, partition: int) -> None:
        self._loop.do(self._consumer.resume, self._of(partition))

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
