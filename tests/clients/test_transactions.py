"""There are no transactions: who wants them is told so at once and for good, in words where the client shows them."""

import asyncio
from collections.abc import Mapping

import pytest
import trio
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from tests.servers.apache_kafka import AGAINST_APACHE
from tests.support.clients.interface import Client, ClientError
from tests.support.clients.java import JavaClient

pytestmark = pytest.mark.skipif(AGAINST_APACHE, reason="Apache Kafka has transactions")

PATIENCE_SECONDS = 50
"""Less than any of them repeats what may be repeated."""


def test_librdkafka_ends_with_a_fatal_error_that_says_why(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    with pytest.raises(KafkaException, match="there are no transactions") as refused:
        producer.init_transactions(PATIENCE_SECONDS)
    error = refused.value.args[0]
    assert (error.fatal(), error.retriable()) == (True, False)


def test_java_ends_with_an_exception_that_says_why(clients: Mapping[str, Client]) -> None:
    java = clients["java"]
    assert isinstance(java, JavaClient)
    # What runs into max.block.ms is a TimeoutException.
    with pytest.raises(ClientError, match=r"KafkaException: .*there are no transactions"):
        java.init_transactions("tx")


def test_kafka_python_ends_with_an_error(bootstrap: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id="tx", max_block_ms=PATIENCE_SECONDS * 1000, retries=10
    )
    try:
        with pytest.raises(KafkaPythonError, match="ClusterAuthorizationFailed"):
            producer.init_transactions()
    finally:
        producer.close(timeout=1)


async def test_aiokafka_ends_with_an_error(bootstrap: str) -> None:
    async def begin() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx")
        try:
            with pytest.raises(AiokafkaError, match="ClusterAuthorizationFailed"):
                await asyncio.wait_for(producer.start(), PATIENCE_SECONDS)
        finally:
            await producer.stop()

    await trio.to_thread.run_sync(lambda: asyncio.run(begin()))
