"""confluent-kafka: librdkafka from Python."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.clients.interface import (
    COOPERATIVE,
    LARGEST_REQUEST,
    LINGER_MS,
    PLAIN,
    QUICK_HEARTBEAT_MS,
    RANGE,
    ROUND_ROBIN,
    TIMEOUT_SECONDS,
    Abilities,
    ClientError,
    Member,
    Message,
    ProduceOptions,
    Received,
    Record,
)

T = TypeVar("T")


class ConfluentClient:
    name = "confluent-kafka"
    version = f"{ck.__version__}, librdkafka {ck.libversion()[0]}"
    # Scenarios about topic creation use kcat, which reports the broker's answer.
    abilities = Abilities()
    idempotent = False
    assignors: Mapping[str, str] = {RANGE: RANGE, ROUND_ROBIN: ROUND_ROBIN, COOPERATIVE: COOPERATIVE}
    topic_configs: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {}

    def __init__(self, bootstrap: str) -> None:
        self._servers: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
        self._common = {**self._servers, "topic.metadata.refresh.fast.interval.ms": 50}

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._servers)

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(configs or {}))
        _result(self._admin.create_topics([new])[topic])

    def create_partitions(self, topic: str, total: int) -> None:
        _result(self._admin.create_partitions([NewPartitions(topic, total)])[topic])

    def delete_topic(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic])[topic])

    def topics(self) -> set[str]:
        """Return the names of all topics. The request does not create any."""
        return set(self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics)

    def partitions(self, topic: str) -> int:
        return len(_result(self._admin.describe_topics(TopicCollection([topic]))[topic]).partitions)

    def configs(self, topic: str) -> dict[str, str | None]:
        (answer,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in _result(answer).items()}

    def alter_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (answer,) = self._admin.incremental_alter_configs([resource]).values()
        _result(answer)

    def groups(self) -> set[str]:
        return {one.group_id for one in _result(self._admin.list_consumer_groups()).valid}

    def describe_group(self, group: str) -> tuple[str, int]:
        described = _result(self._admin.describe_consumer_groups([group])[group])
        return described.state.name.lower(), len(described.members)

    def assignor_of(self, group: str) -> str:
        """Return the assignor that the group's members chose."""
        return str(_result(self._admin.describe_consumer_groups([group])[group]).partition_assignor)

    def delete_group(self, group: str) -> None:
        _result(self._admin.delete_consumer_groups([group])[group])

    def committed(self, group: str, topic: str) -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        offsets = _result(self._admin.list_consumer_group_offsets(asked)[group]).topic_partitions
        return {one.partition: one.offset for one in offsets if one.topic == topic}

    def member(
        self, topic: str, group: str, *, assignor: str | None = None, auto_commit: bool = True, quick: bool = False
    ) -> Member:
        settings: dict[str, str | int | float | bool] = {"group.id": group, "auto.offset.reset": "earliest"}
        if assignor:
            settings["partition.assignment.strategy"] = assignor
        if not auto_commit:
            settings["enable.auto.commit"] = False
        if quick:
            settings["heartbeat.interval.ms"] = QUICK_HEARTBEAT_MS
        return _Member(ck.Consumer({**self._servers, **settings}), topic)

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int]:
        settings: dict[str, str | int | float | bool] = {
            **self._common,
            "enable.idempotence": False,
            "acks": options.acks,
            "compression.codec": options.codec,
            "linger.ms": LINGER_MS,
            "message.max.bytes": LARGEST_REQUEST,
        }
        producer = ck.Producer(self._servers if options.defaults else settings)
        offsets: list[int] = []
        errors: list[ck.KafkaError] = []

        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset() or 0)

        for message in messages:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=-1 if options.partition is None else options.partition,
                on_delivery=delivered,
                timestamp=message.timestamp or 0,
            )
        if producer.flush(TIMEOUT_SECONDS):
            raise TimeoutError("not everything was acknowledged")
        if errors:
            raise ClientError(errors[0].code(), errors[0].str())
        return offsets

    def _consumer(self) -> ck.Consumer:
        return ck.Consumer(
            {
                **self._common,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.max.bytes": LARGEST_REQUEST,
            }
        )

    def consume(self, topic: str, *, count: int, offset: int | None = None, partition: int = 0) -> list[Received]:
        consumer = self._consumer()
        received: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            consumer.assign([ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING if offset is None else offset)])
            while len(received) < count and time.monotonic() < deadline:
                received += [_received(message) for message in consumer.consume(count - len(received), timeout=0.2)]
        finally:
            consumer.close()
        return received

    def consume_all(self, topic: str, *, partition: int = 0) -> list[Received]:
        """Return the records from the start of the log to its end at present."""
        consumer = ck.Consumer({**self._common, "group.id": "unused", "enable.partition.eof": True})
        received: list[Received] = []
        try:
            consumer.assign([ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING)])
            while (message := consumer.poll(TIMEOUT_SECONDS)) is not None:
                error = message.error()
                if error is None:
                    received.append(_received(message))
                    continue
                if error.code() != ck.KafkaError._PARTITION_EOF:
                    _raise(error)
                return received
        finally:
            consumer.close()
        raise TimeoutError("no end of the partition")

    def offset_for_time(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        consumer = self._consumer()
        try:
            asked = [ck.TopicPartition(topic, partition, timestamp)]
            (found,) = consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS)
        finally:
            consumer.close()
        return None if found.offset == ck.OFFSET_END else found.offset

    def offsets(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            marks = consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), timeout=TIMEOUT_SECONDS)
        finally:
            consumer.close()
        if marks is None:
            raise TimeoutError("no watermarks")
        return marks

    def close(self) -> None:
        pass


def _raise(error: ck.KafkaError | None) -> None:
    if error is not None:
        raise ClientError(error.code(), error.str())


def _received(message: ck.Message) -> Received:
    _raise(message.error())
    headers: Any = message.headers() or []
    return Received(
        offset=message.offset() or 0,
        timestamp=message.timestamp()[1],
        value=message.value(),
        key=message.key(),
        headers=tuple((name, value) for name, value in headers),
    )


def _result(future: "Future[T]") -> T:
    try:
        return future.result(TIMEOUT_SECONDS)
    except ck.KafkaException as error:
        failure: ck.KafkaError = error.args[0]
        raise ClientError(failure.code(), failure.str()) from error


class _Member:
    def __init__(self, consumer: ck.Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        consumer.subscribe([topic])

    def poll(self, seconds: float) -> list[Record]:
        message = self._consumer.poll(seconds)
        records = []
        while message is not None:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            records.append(Record(message.partition() or 0, message.offset() or 0, (message.value() or b"").decode()))
            message = self._consumer.poll(0)
        return records

    def assigned(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        asked = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        for one in self._consumer.commit(offsets=asked, asynchronous=False) or []:
            if one.error is not None:
                raise RuntimeError(str(one.error))

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition, offset))

    def pause(self, partition: int) -> None:
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        self._consumer.resume([TopicPartition(self._topic, partition)])

    def close(self) -> None:
        self._consumer.close()
