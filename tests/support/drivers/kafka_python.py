"""kafka-python."""

import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kafka
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.support.drivers.interface import (
    COOPERATIVE,
    RANGE,
    ROUND_ROBIN,
    SECONDS,
    STICKY,
    Member,
    Record,
    kafka_python_settings,
    polled,
)

_ASSIGNORS = {
    RANGE: RangePartitionAssignor,
    ROUND_ROBIN: RoundRobinPartitionAssignor,
    STICKY: StickyPartitionAssignor,
    COOPERATIVE: CooperativeStickyAssignor,
}
_POLL_MS = 1000


class KafkaPythonDriver:
    name = "kafka-python"
    version = kafka.__version__
    idempotent = True
    assignors: Mapping[str, str] = {name: name for name in _ASSIGNORS}
    topic_configs: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {}

    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap_servers": bootstrap}
        self._admin = KafkaAdminClient(**self._common)
        self._producer = kafka.KafkaProducer(**self._common)

    def produce(self, topic: str, values: Sequence[str], partition: int | None = None) -> None:
        sent = [self._producer.send(topic, value.encode(), partition=partition) for value in values]
        for future in sent:
            future.get(SECONDS)

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> Member:
        settings = kafka_python_settings(group, _ASSIGNORS, assignor=assignor, auto_commit=auto_commit, quick=quick)
        return _Member(kafka.KafkaConsumer(topic, **self._common, **settings), topic)

    def offsets_for_time(self, topic: str, timestamp: int) -> dict[int, int | None]:
        consumer = kafka.KafkaConsumer(**self._common)
        try:
            asked = {kafka.TopicPartition(topic, number): timestamp for number in range(self.partitions(topic))}
            found = consumer.offsets_for_times(asked)
            return {of.partition: None if at is None else at.offset for of, at in found.items()}
        finally:
            consumer.close()

    def committed(self, group: str, topic: str) -> dict[int, int]:
        told = self._admin.list_group_offsets({group: None})[group]
        return {of.partition: at.offset for of, at in told.items() if of.topic == topic}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._admin.create_topics({topic: {"num_partitions": partitions, "configs": dict(configs)}})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions(self, topic: str) -> int:
        (told,) = self._admin.describe_topics([topic])
        return len(told["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions({topic: total})

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def configs(self, topic: str) -> dict[str, str | None]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, None)
        told = self._admin.describe_configs([asked], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in told.items()}

    def alter_config(self, topic: str, name: str, value: str) -> None:
        self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])

    def groups(self) -> set[str]:
        return {one["group_id"] for one in self._admin.list_groups()}

    def describe_group(self, group: str) -> tuple[str, int]:
        told = self._admin.describe_groups([group])[group]
        return told["group_state"].lower(), len(told["members"])

    def delete_group(self, group: str) -> None:
        told = self._admin.delete_groups([group])
        if told != {group: "OK"}:
            raise RuntimeError(str(told))

    def close(self) -> None:
        self._producer.close()
        self._admin.close()


class _Member:
    """A consumer that a thread polls all the time, between what it is told.

    Two that are polled in turn by one thread disturb each other's rebalances: by cooperative-sticky they rejoin for
    minutes, on Apache Kafka as well. And what a group answers just when a short poll ends, the client may forget: it
    waits then for an assignment that it has got.
    """

    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._records: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._assigned: set[int] = set()
        self._closing = False
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._polling = self._thread.submit(self._poll_on)

    def _poll_on(self) -> None:
        """Poll once, and again behind what it was told meanwhile."""
        for part in self._consumer.poll(timeout_ms=_POLL_MS).values():
            for one in part:
                self._records.put(Record(one.partition, one.offset, one.value.decode()))
        self._assigned = {one.partition for one in self._consumer.assignment()}
        if not self._closing:
            self._polling = self._thread.submit(self._poll_on)

    def _tell(self, call: Callable[..., Any], *arguments: object) -> Any:
        return self._thread.submit(call, *arguments).result(SECONDS)

    def _of(self, partition: int) -> Any:
        return kafka.TopicPartition(self._topic, partition)

    def poll(self, seconds: float) -> list[Record]:
        if self._polling.done():
            self._polling.result()
        return polled(self._records, seconds)

    def assigned(self) -> set[int]:
        return self._assigned

    def commit(self, offsets: Mapping[int, int]) -> None:
        told = {self._of(partition): kafka.OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        self._tell(self._consumer.commit, told)

    def seek(self, partition: int, offset: int) -> None:
        self._tell(self._consumer.seek, self._of(partition), offset)

    def pause(self, partition: int) -> None:
        self._tell(self._consumer.pause, self._of(partition))

    def resume(self, partition: int) -> None:
        self._tell(self._consumer.resume, self._of(partition))

    def close(self) -> None:
        self._closing = True
        self._tell(self._consumer.close)
        self._thread.shutdown()
