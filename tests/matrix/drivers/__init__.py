"""The clients of the matrix."""

from typing import cast

from tests.matrix.drivers.aiokafka_driver import AiokafkaDriver
from tests.matrix.drivers.confluent import ConfluentDriver
from tests.matrix.drivers.interface import Driver
from tests.matrix.drivers.kafka_python import KafkaPythonDriver
from tests.matrix.drivers.kcat import KcatDriver
from tests.matrix.drivers.programs import JavaDriver, KafkaJsDriver, KgoDriver

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
