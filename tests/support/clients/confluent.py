"""confluent-kafka: librdkafka from Python."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

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


class ConfluentClient:
    name = "confluent-kafka"
    # librdkafka's flag is asked for by kcat, which tells the broker's answer.
    abilities = Abilities()

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "topic.metadata.refresh.fast.interval.ms": 50,
        }

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(configs or {}))
        admin = AdminClient(self._common)
        _result(admin.create_topics([new])[topic])

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient(self._common)
        _result(admin.delete_topics([topic])[topic])

    def topics(self) -> set[str]:
        """Every topic's name; asking does not create any."""
        return set(AdminClient(self._common).list_topics(timeout=TIMEOUT_SECONDS).topics)

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int]:
        producer = ck.Producer(
            {
                **self._common,
                "enable.idempotence": False,
                "acks": options.acks,
                "compression.codec": options.codec,
                "linger.ms": LINGER_MS,
                "message.max.bytes": LARGEST_REQUEST,
            }
        )
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
                partition=options.partition,
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


def _result(future: "Future[None]") -> None:
    try:
        future.result(TIMEOUT_SECONDS)
    except ck.KafkaException as error:
        _raise(error.args[0])
