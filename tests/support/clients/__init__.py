"""The Kafka clients that tests use."""

from typing import cast

from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import AskingClient, Client, MatrixClient, TopicClient
from tests.support.clients.java import JavaClient
from tests.support.clients.kafka_python import KafkaPythonClient
from tests.support.clients.kcat import KcatClient
from tests.support.clients.programs import FranzGoClient, KafkaJsClient

CLIENTS: dict[str, type[Client]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "java": JavaClient,
    "aiokafka": AiokafkaClient,
    "kcat": KcatClient,
}

MAKERS: dict[str, type[TopicClient]] = {
    "aiokafka": AiokafkaClient,
    "confluent-kafka": ConfluentClient,
    "java": JavaClient,
    "kafka-python": KafkaPythonClient,
}
"""Clients that create topics. kcat cannot."""

ASKERS: dict[str, type[AskingClient]] = {"java": JavaClient, "kcat": KcatClient}
"""Clients with a setting for auto-creation that report the broker's answer."""

MATRIX: dict[str, type[MatrixClient]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": cast(type[MatrixClient], AiokafkaClient),  # except for the methods in `lacks`
    "java": JavaClient,
    "kafkajs": KafkaJsClient,
    "franz-go": FranzGoClient,
    "kcat": cast(type[MatrixClient], KcatClient),
}

ASSIGNORS = [(name, assignor) for name, make in MATRIX.items() for assignor in make.assignors]
"""Every client with each assignor that it has."""
