"""One broker that all programs of a run share.

``KAFSCALE_TEST_AGAINST=apache`` runs the same on Apache Kafka: it shows that they ask for nothing else there.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from tests.ecosystem.programs import PATIENCE
from tests.servers.apache_kafka import AGAINST_APACHE, ApacheKafka, apache_kafka
from tests.support.broker import KafscaleBroker
from tests.support.clients.confluent import ConfluentClient


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker | ApacheKafka]:
    """Groups begin at once, which no program depends on."""
    directory = tmp_path_factory.mktemp("broker")
    if AGAINST_APACHE:
        with apache_kafka(directory) as kafka:
            yield kafka
        return
    settings = {
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFSCALE_REWRITE_CHECK_MS": "200",
        "KAFSCALE_REWRITE_GRACE_MS": "2000",
    }
    broker = KafscaleBroker(directory, settings)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def bootstrap(broker: KafscaleBroker | ApacheKafka) -> str:
    return broker.bootstrap


@pytest.fixture
def restart_broker(broker: KafscaleBroker | ApacheKafka) -> Callable[[], None]:
    """Kills KafScale and starts it again with its data. Apache Kafka goes on."""

    def restart() -> None:
        if isinstance(broker, KafscaleBroker):
            broker.kill_and_restart()

    return restart


@pytest.fixture(scope="session")
def client(bootstrap: str) -> ConfluentClient:
    """Says what is in topics."""
    return ConfluentClient(bootstrap)


_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    """For the topics and groups that only this test has."""
    return f"eco-{next(_NUMBERS)}"


@pytest.fixture
def words(bootstrap: str, client: ConfluentClient, name: str) -> "Words":
    """A fresh topic of words, with two partitions."""
    topic = f"{name}-words"
    client.create_topic(topic, partitions=2)
    return Words(bootstrap, topic)


class Words:
    """Keyed by themselves."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def write(self, *words: str) -> None:
        for word in words:
            self._producer.produce(self.topic, word.encode(), key=word.encode())
        assert self._producer.flush(PATIENCE) == 0
