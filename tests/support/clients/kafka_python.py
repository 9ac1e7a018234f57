"""kafka-python."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import kafka
from kafka import errors
from kafka.admin import KafkaAdminClient, NewTopic

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


class KafkaPythonClient:
    name = "kafka-python"
    # Its consumer asks for all topics, so that no flag of it creates one; its headers are never null.
    abilities = Abilities(null_headers=False)

    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap_servers": bootstrap}

    def _admin(self, call: str, *arguments: object) -> None:
        admin = KafkaAdminClient(**self._common)
        try:
            getattr(admin, call)(*arguments)
        except errors.BrokerResponseError as error:
            raise ClientError(error.errno, str(error)) from error
        finally:
            admin.close()

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, topic_configs=dict(configs or {}))
        self._admin("create_topics", [new])

    def delete_topic(self, topic: str) -> None:
        self._admin("delete_topics", [topic])

    def produce(self, topic: str, messages: Sequence[Message], options: ProduceOptions = PLAIN) -> list[int]:
        producer = kafka.KafkaProducer(
            **self._common,
            acks=options.acks if options.acks == "all" else int(options.acks),
            enable_idempotence=False,
            compression_type=None if options.codec == "none" else options.codec,
            linger_ms=LINGER_MS,
            batch_size=LARGEST_REQUEST // 16,
            max_request_size=LARGEST_REQUEST,
        )
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
