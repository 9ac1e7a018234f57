"""Topic and broker configs through confluent-kafka's admin client."""

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

_SECONDS = 30


def described(admin: AdminClient, kind: ResourceType, name: str) -> Mapping[str, ConfigEntry]:
    (asked,) = admin.describe_configs([ConfigResource(kind, name)], request_timeout=_SECONDS).values()
    entries: Mapping[str, ConfigEntry] = asked.result(_SECONDS)
    return entries


def changed(admin: AdminClient, topic: str, *changes: tuple[str, AlterConfigOpType, str | None]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, operation, value in changes]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    (asked,) = admin.incremental_alter_configs([resource], request_timeout=_SECONDS).values()
    asked.result(_SECONDS)
