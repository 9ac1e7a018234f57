"""Read a topic with a Kafka client, up to its current end."""

from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

_WAIT_SECONDS = 30.0


@dataclass(frozen=True)
class Found:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


def consume(bootstrap: str, topic: str, partitions: int) -> list[Found]:
    """Return the records by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False})
    try:
        missing = 0
        for number in range(partitions):
            start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_WAIT_SECONDS)
            missing += end - start
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Found] = []
        while len(found) < missing:
            message = consumer.poll(_WAIT_SECONDS)
            assert message is not None, f"{len(found)} of {missing} records arrived"
            assert message.error() is None
            headers: Any = message.headers()
            found.append(
                Found(
                    message.partition() or 0,
                    message.offset() or 0,
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    tuple(headers or ()),
                )
            )
        return sorted(found, key=lambda record: (record.partition, record.offset))
    finally:
        consumer.close()
