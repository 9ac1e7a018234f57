"""Topics for the Spark tests, created and filled by a Kafka client."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import uuid4

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

_WAIT_SECONDS = 30.0


@dataclass(frozen=True)
class Message:
    """``number``: of the partition."""

    number: int
    value: bytes | None
    key: bytes | None = None
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Topics:
    """Operations of tests on topics, through a gateway."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def make(self, partitions: int = 1, *, name: str = "", configs: Mapping[str, str] | None = None) -> str:
        """Create a topic and return its name. Its records have old timestamps but are not deleted."""
        topic = name or f"t-{uuid4().hex[:8]}"
        made = self._admin.create_topics(
            [NewTopic(topic, partitions, 1, config={"retention.ms": "-1"} | dict(configs or {}))]
        )
        made[topic].result(_WAIT_SECONDS)
        return topic

    def produce(self, topic: str, messages: Iterable[Message]) -> None:
        """Produce messages in small batches and return when all are acknowledged."""
        failed = []
        producer = Producer({"bootstrap.servers": self._bootstrap, "batch.num.messages": 50, "linger.ms": 5})
        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                message.number,
                on_delivery=lambda error, _: failed.append(error) if error else None,
                timestamp=message.timestamp,
                headers=list(message.headers),
            )
            producer.poll(0)
        assert producer.flush(_WAIT_SECONDS) == 0
        assert failed == []

    def fill(self, topic: str, number: int, count: int, *, first: int = 0, size: int = 0) -> None:
        """Produce records whose values are their own numbers and whose timestamps are a second apart."""
        self.produce(
            topic,
            (
                Message(number, str(n).encode().ljust(size, b"."), f"k{n}".encode(), 1_700_000_000_000 + n * 1000)
                for n in range(first, first + count)
            ),
        )

    def delete_before(self, topic: str, number: int, offset: int) -> None:
        """Move the log start to ``offset``."""
        [done] = self._admin.delete_records([TopicPartition(topic, number, offset)]).values()
        done.result(_WAIT_SECONDS)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_WAIT_SECONDS)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(_WAIT_SECONDS)
