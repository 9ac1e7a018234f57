"""The Kafka clients that the scenarios run on."""

from tests.clients.adapters.aiokafka_client import AiokafkaClient
from tests.clients.adapters.confluent import ConfluentClient
from tests.clients.adapters.interface import Client
from tests.clients.adapters.java import JavaClient
from tests.clients.adapters.kafka_python import KafkaPythonClient
from tests.clients.adapters.kcat import KcatClient

CLIENTS: dict[str, type[Client]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "java": JavaClient,
    "aiokafka": AiokafkaClient,
    "kcat": KcatClient,
}
