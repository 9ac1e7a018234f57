"""The clients of the matrix."""

from typing import cast

from tests.support.drivers.aiokafka_driver import AiokafkaDriver
from tests.support.drivers.confluent import ConfluentDriver
from tests.support.drivers.interface import Driver
from tests.support.drivers.kafka_python import KafkaPythonDriver
from tests.support.drivers.kcat import KcatDriver
from tests.support.drivers.programs import JavaDriver, KafkaJsDriver, KgoDriver

DRIVERS: dict[str, type[Driver]] = {
    "confluent-kafka": ConfluentDriver,
    "kafka-python": KafkaPythonDriver,
    "aiokafka": cast(type[Driver], AiokafkaDriver),  # but for what `lacks` names
    "java": JavaDriver,
    "kafkajs": KafkaJsDriver,
    "franz-go": KgoDriver,
    "kcat": cast(type[Driver], KcatDriver),
}

ASSIGNORS = [(name, assignor) for name, make in DRIVERS.items() for assignor in make.assignors]
"""Every client with each assignor that it has."""
