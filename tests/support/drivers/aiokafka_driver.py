"""aiokafka, in an asyncio loop of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.support.drivers.interface import RANGE, ROUND_ROBIN, SECONDS, STICKY, Member, Record, kafka_python_settings

_ASSIGNORS = {
    RANGE: RangePartitionAssignor,
    ROUND_ROBIN: RoundRobinPartitionAssignor,
    STICKY: StickyPartitionAssignor,
}

T = TypeVar("T")


class _Loop:
    """A loop that runs in a thread, so that members go on between calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def do(self, call: Callable[..., None], *arguments: object) -> None:
        """Call in the loop's thread what is no coroutine, and changes what the loop's tasks use."""

        async def called() -> None:
            call(*arguments)

        self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AiokafkaDriver:
    name = "aiokafka"
    version = aiokafka.__version__
    idempotent = False
    assignors: Mapping[str, str] = {name: name for name in _ASSIGNORS}
    topic_configs: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {"delete_group": "its admin client cannot delete groups"}

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = _Loop()
        self._admin, self._producer = self._loop.run(self._start())

    async def _start(self) -> tuple[Any, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._bootstrap)
        await producer.start()
        return admin, producer

    def produce(self, topic: str, values: Sequence[str], partition: int | None = None) -> None:
        self._loop.run(self._produce(topic, values, partition))

    async def _produce(self, topic: str, values: Sequence[str], partition: int | None) -> None:
        sent = [await self._producer.send(topic, value.encode(), partition=partition) for value in values]
        await asyncio.gather(*sent)

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> Member:
        settings = kafka_python_settings(group, _ASSIGNORS, assignor=assignor, auto_commit=auto_commit, quick=quick)
        return _Member(self._loop, self._loop.run(self._consumer(topic, **settings)), topic)

    async def _consumer(self, *topics: str, **settings: Any) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(*topics, bootstrap_servers=self._bootstrap, **settings)
        await consumer.start()
        return consumer

    def offsets_for_time(self, topic: str, timestamp: int) -> dict[int, int | None]:
        return self._loop.run(self._offsets_for_time(topic, timestamp))

    async def _offsets_for_time(self, topic: str, timestamp: int) -> dict[int, int | None]:
        consumer = await self._consumer(topic)
        try:
            asked = {aiokafka.TopicPartition(topic, n): timestamp for n in consumer.partitions_for_topic(topic)}
            found = await consumer.offsets_for_times(asked)
        finally:
            await consumer.stop()
        return {of.partition: None if at is None else at.offset for of, at in found.items()}

    def committed(self, group: str, topic: str) -> dict[int, int]:
        told = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {of.partition: at.offset for of, at in told.items() if of.topic == topic}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=dict(configs))
        _refused(self._loop.run(self._admin.create_topics([new])).topic_errors)

    def topics(self) -> set[str]:
        return set(self._loop.run(self._admin.list_topics()))

    def partitions(self, topic: str) -> int:
        (told,) = self._loop.run(self._admin.describe_topics([topic]))
        return len(told["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        self._loop.run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def delete_topic(self, topic: str) -> None:
        _refused(self._loop.run(self._admin.delete_topics([topic])).topic_error_codes)

    def configs(self, topic: str) -> dict[str, str | None]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        (told,) = self._loop.run(self._admin.describe_configs([asked]))
        ((code, message, _, _, entries),) = told.resources
        if code:
            raise RuntimeError(message)
        return {entry[0]: entry[1] for entry in entries}

    def alter_config(self, topic: str, name: str, value: str) -> None:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        for told in self._loop.run(self._admin.alter_configs([asked])):
            for code, message, *_ in told.resources:
                if code:
                    raise RuntimeError(message)

    def groups(self) -> set[str]:
        return {one[0] for one in self._loop.run(self._admin.list_consumer_groups())}

    def describe_group(self, group: str) -> tuple[str, int]:
        (told,) = self._loop.run(self._admin.describe_consumer_groups([group]))
        ((code, _, state, _, _, members, *_),) = told.groups
        if code:
            raise RuntimeError(f"error {code}")
        return state.lower(), len(members)

    def close(self) -> None:
        self._loop.run(self._producer.stop())
        self._loop.run(self._admin.close())
        self._loop.close()


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


def _refused(entries: Sequence[Any]) -> None:
    """Raise when an entry's error code, its second field, is one."""
    for entry in entries:
        if entry[1]:
            raise RuntimeError(str(entry))
