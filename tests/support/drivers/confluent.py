"""confluent-kafka: librdkafka from Python."""

from collections.abc import Mapping, Sequence

import confluent_kafka as ck
from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.drivers.interface import COOPERATIVE, QUICK_HEARTBEAT_MS, RANGE, ROUND_ROBIN, SECONDS, Member, Record


class ConfluentDriver:
    name = "confluent-kafka"
    version = f"{ck.__version__}, librdkafka {ck.libversion()[0]}"
    idempotent = False
    assignors: Mapping[str, str] = {RANGE: RANGE, ROUND_ROBIN: ROUND_ROBIN, COOPERATIVE: COOPERATIVE}
    topic_configs: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {}

    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(dict(self._common))
        self._producer = ck.Producer(dict(self._common))

    def produce(self, topic: str, values: Sequence[str], partition: int | None = None) -> None:
        errors: list[ck.KafkaError | None] = []
        to = -1 if partition is None else partition
        for value in values:
            self._producer.produce(
                topic, value.encode(), partition=to, on_delivery=lambda error, _: errors.append(error)
            )
        self._producer.flush(SECONDS)
        if errors != [None] * len(values):
            raise RuntimeError(f"{len(errors)} of {len(values)} answered: {errors}")

    def produce_at(self, topic: str, partition: int, timestamps: Sequence[int]) -> None:
        """A record for each of these times in ms."""
        for timestamp in timestamps:
            self._producer.produce(topic, b"%d" % timestamp, partition=partition, timestamp=timestamp)
        if self._producer.flush(SECONDS):
            raise RuntimeError("not acknowledged")

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
        return _Member(ck.Consumer({**self._common, **settings}), topic)

    def offsets_for_time(self, topic: str, timestamp: int) -> dict[int, int | None]:
        spec = OffsetSpec.for_timestamp(timestamp)
        asked = {TopicPartition(topic, number): spec for number in range(self.partitions(topic))}
        found = {of.partition: answer.result(SECONDS).offset for of, answer in self._admin.list_offsets(asked).items()}
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def committed(self, group: str, topic: str) -> dict[int, int]:
        told = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(SECONDS)
        return {one.partition: one.offset for one in told.topic_partitions if one.topic == topic}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, config=dict(configs))
        self._admin.create_topics([new])[topic].result(SECONDS)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=SECONDS).topics)

    def partitions(self, topic: str) -> int:
        return len(self._admin.describe_topics(TopicCollection([topic]))[topic].result(SECONDS).partitions)

    def create_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(SECONDS)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(SECONDS)

    def configs(self, topic: str) -> dict[str, str | None]:
        (answer,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in answer.result(SECONDS).items()}

    def alter_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (answer,) = self._admin.incremental_alter_configs([resource]).values()
        answer.result(SECONDS)

    def groups(self) -> set[str]:
        return {one.group_id for one in self._admin.list_consumer_groups().result(SECONDS).valid}

    def describe_group(self, group: str) -> tuple[str, int]:
        told = self._admin.describe_consumer_groups([group])[group].result(SECONDS)
        return told.state.name.lower(), len(told.members)

    def assignor_of(self, group: str) -> str:
        """What the group's members chose."""
        return str(self._admin.describe_consumer_groups([group])[group].result(SECONDS).partition_assignor)

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(SECONDS)

    def close(self) -> None:
        pass


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
        told = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        for one in self._consumer.commit(offsets=told, asynchronous=False) or []:
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
