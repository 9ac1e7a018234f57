"""Transactions are not supported.

Clients that begin one get a fatal error, with the reason where the client shows it.
"""

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
"""Less than the time for which any client repeats a retriable request."""


def test_librdkafka_stops_with_a_fatal_error_that_names_the_reason(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    with pytest.raises(KafkaException, match="transactions and share groups are not supported") as refused:
        producer.init_transactions(PATIENCE_SECONDS)
    error = refused.value.args[0]
    assert (error.fatal(), error.retriable()) == (True, False)


def test_java_stops_with_an_exception_that_names_the_reason(clients: Mapping[str, Client]) -> None:
    java = clients["java"]
    assert isinstance(java, JavaClient)
    # A client that waits for max.block.ms raises a TimeoutException instead.
    with pytest.raises(ClientError, match=r"KafkaException: .*transactions and share groups are not supported"):
        java.init_transactions("tx")


def test_kafka_python_stops_with_an_error(bootstrap: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id="tx", max_block_ms=PATIENCE_SECONDS * 1000, retries=10
    )
    try:
        with pytest.raises(KafkaPythonError, match="ClusterAuthorizationFailed"):
            producer.init_transactions()
    finally:
        producer.close(timeout=1)


async def test_aiokafka_stops_with_an_error(bootstrap: str) -> None:
    async def begin() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx")
        try:
            with pytest.raises(AiokafkaError, match="ClusterAuthorizationFailed"):
                await asyncio.wait_for(producer.start(), PATIENCE_SECONDS)
        finally:
            await producer.stop()

    await trio.to_thread.run_sync(lambda: asyncio.run(begin()))
