"""The Kafka clients that the scenarios run on."""

from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import AskingClient, Client, TopicClient
from tests.support.clients.java import JavaClient
from tests.support.clients.kafka_python import KafkaPythonClient
from tests.support.clients.kcat import KcatClient

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
"""Those that make topics; kcat does not."""

ASKERS: dict[str, type[AskingClient]] = {"java": JavaClient, "kcat": KcatClient}
"""Those in which leave to create topics can be given and taken, and that tell the broker's answer."""
