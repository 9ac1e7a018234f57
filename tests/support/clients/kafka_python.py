"""kafka-python."""

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kafka
from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.support.clients.interface import (
    COOPERATIVE,
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
    polled,
)

_ASSIGNORS = {
    RANGE: RangePartitionAssignor,
    ROUND_ROBIN: RoundRobinPartitionAssignor,
    STICKY: StickyPartitionAssignor,
    COOPERATIVE: CooperativeStickyAssignor,
}
_POLL_MS = 1000


class KafkaPythonClient:
    name = "kafka-python"
    version = kafka.__version__
    # Its consumer requests all topics, so no flag of it creates one; its headers are never null.
    abilities = Abilities(null_headers=False)
    idempotent = True
    assignors: Mapping[str, str] = {name: name for name in _ASSIGNORS}
    topic_configs: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {}

    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap_servers": bootstrap}

    def _admin(self, call: str, *arguments: object, **options: object) -> Any:
        admin = KafkaAdminClient(**self._common)
        try:
            return getattr(admin, call)(*arguments, **options)
        except errors.BrokerResponseError as error:
            raise ClientError(error.errno, str(error)) from error
        finally:
            admin.close()

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, topic_configs=dict(configs or {}))
        self._admin("create_topics", [new])

    def create_partitions(self, topic: str, total: int) -> None:
        self._admin("create_partitions", {topic: total})

    def delete_topic(self, topic: str) -> None:
        self._admin("delete_topics", [topic])

    def topics(self) -> set[str]:
        return set(self._admin("list_topics"))

    def partitions(self, topic: str) -> int:
        (described,) = self._admin("describe_topics", [topic])
        return len(described["partitions"])

    def configs(self, topic: str) -> dict[str, str | None]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, None)
        described = self._admin("describe_configs", [asked], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in described.items()}

    def alter_config(self, topic: str, name: str, value: str) -> None:
        self._admin("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])

    def groups(self) -> set[str]:
        return {one["group_id"] for one in self._admin("list_groups")}

    def describe_group(self, group: str) -> tuple[str, int]:
        described = self._admin("describe_groups", [group])[group]
        return described["group_state"].lower(), len(described["members"])

    def delete_group(self, group: str) -> None:
        outcome = self._admin("delete_groups", [group])
        if outcome != {group: "OK"}:
            raise RuntimeError(str(outcome))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        offsets = self._admin("list_group_offsets", {group: None})[group]
        return {of.partition: at.offset for of, at in offsets.items() if of.topic == topic}

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> Member:
        settings = kafka_python_settings(group, _ASSIGNORS, assignor=assignor, auto_commit=auto_commit, quick=quick)
        return _Member(kafka.KafkaConsumer(topic, **self._common, **settings), topic)

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int]:
        settings: dict[str, Any] = {
            "acks": options.acks if options.acks == "all" else int(options.acks),
            "enable_idempotence": False,
            "compression_type": None if options.codec == "none" else options.codec,
            "linger_ms": LINGER_MS,
            "batch_size": LARGEST_REQUEST // 16,
            "max_request_size": LARGEST_REQUEST,
        }
        producer = kafka.KafkaProducer(**self._common, **({} if options.defaults else settings))
        try:
            sent = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=options.partition,
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            producer.flush(TIMEOUT_SECONDS)
            return [future.get(TIMEOUT_SECONDS).offset for future in sent]
        except errors.BrokerResponseError as error:
            raise ClientError(error.errno, str(error)) from error
        finally:
            producer.close()

    def _consumer(self) -> Any:
        return kafka.KafkaConsumer(
            **self._common,
            group_id=None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            fetch_max_bytes=LARGEST_REQUEST,
        )

    def consume(self, topic: str, *, count: int, offset: int | None = None, partition: int = 0) -> list[Received]:
        consumer = self._consumer()
        received: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            where = kafka.TopicPartition(topic, partition)
            consumer.assign([where])
            if offset is None:
                consumer.seek_to_beginning(where)
            else:
                consumer.seek(where, offset)
            while len(received) < count and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=200, max_records=count - len(received))
                for records in polled.values():
                    received += [_received(record) for record in records]
        finally:
            consumer.close()
        return received

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        consumer = self._consumer()
        try:
            where = kafka.TopicPartition(topic, partition)
            found = consumer.offsets_for_times({where: timestamp})[where]
        finally:
            consumer.close()
        return None if found is None or found.offset < 0 else int(found.offset)

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            where = kafka.TopicPartition(topic, partition)
            return consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]
        finally:
            consumer.close()

    def close(self) -> None:
        pass


def _received(record: Any) -> Received:
    return Received(
        offset=record.offset,
        timestamp=record.timestamp,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
    )


class _Member:
    """A consumer that a thread polls all the time, except while it makes another call.

    Two that are polled in turn by one thread disturb each other's rebalances: by cooperative-sticky they rejoin for
    minutes, on Apache Kafka as well. And the client may forget an answer of the group that arrives just
    when a short poll ends; it then waits for an assignment that it already has.
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
        """Poll once, and again after the calls that were made meanwhile."""
        for part in self._consumer.poll(timeout_ms=_POLL_MS).values():
            for one in part:
                self._records.put(Record(one.partition, one.offset, one.value.decode()))
        self._assigned = {one.partition for one in self._consumer.assignment()}
        if not self._closing:
            self._polling = self._thread.submit(self._poll_on)

    def _call(self, call: Callable[..., Any], *arguments: object) -> Any:
        return self._thread.submit(call, *arguments).result(TIMEOUT_SECONDS)

    def _of(self, partition: int) -> Any:
        return kafka.TopicPartition(self._topic, partition)

    def poll(self, seconds: float) -> list[Record]:
        if self._polling.done():
            self._polling.result()
        return polled(self._records, seconds)

    def assigned(self) -> set[int]:
        return self._assigned

    def commit(self, offsets: Mapping[int, int]) -> None:
        committed = {self._of(partition): kafka.OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        self._call(self._consumer.commit, committed)

    def seek(self, partition: int, offset: int) -> None:
        self._call(self._consumer.seek, self._of(partition), offset)

    def pause(self, partition: int) -> None:
        self._call(self._consumer.pause, self._of(partition))

    def resume(self, partition: int) -> None:
        self._call(self._consumer.resume, self._of(partition))

    def close(self) -> None:
        self._closing = True
        self._call(self._consumer.close)
        self._thread.shutdown()
