"""The configs of topics and of this broker as reported to clients: values and their sources."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kafscale.config.listeners import Listener
from kafscale.topics.configs import default_values
from kafscale.topics.definitions import DEFINITIONS, ConfigType
from services.gateway.api import Environment
from services.gateway.settings import GatewaySettings

_UNSET = GatewaySettings()


class ConfigSource(IntEnum):
    """Kafka's numbers for the source of a value."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that applies if no earlier synonym is set."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ShownConfig:
    """A config and its value. ``synonyms`` begin with the one that applies; ``fixed``, if not empty, overrides them."""

    name: str
    synonyms: tuple[Synonym, ...]
    config_type: ConfigType
    documentation: str | None
    read_only: bool = False
    is_sensitive: bool = False
    fixed: str = ""

    @property
    def value(self) -> str:
        return self.fixed or self.synonyms[0].value

    @property
    def config_source(self) -> ConfigSource:
        return self.synonyms[0].source


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker config. ``variable`` names the environment variable that sets it, or is empty if it cannot be set."""

    name: str
    type: ConfigType
    variable: str
    documentation: str
    value: Callable[[GatewaySettings], str]

    def synonyms(self, settings: GatewaySettings) -> tuple[Synonym, ...]:
        """The configured value if it is not the default, then the default."""
        value, default = self.value(settings), self.value(_UNSET)
        set_to = (Synonym(self.name, value, ConfigSource.STATIC_BROKER),) if value != default else ()
        return (*set_to, Synonym(self.name, default, ConfigSource.DEFAULT))


def _behind(topic_config: str) -> Callable[[GatewaySettings], str]:
    return lambda settings: default_values(settings)[topic_config]


_OF_BROKERS = (
    BrokerConfig(
        "auto.create.topics.enable",
        ConfigType.BOOLEAN,
        "KAFSCALE_AUTO_CREATE_TOPICS",
        "Whether a Metadata request for a topic that does not exist creates the topic, if the client allows it too.",
        lambda settings: str(settings.auto_create_topics).lower(),
    ),
    BrokerConfig(
        "connections.max.idle.ms",
        ConfigType.LONG,
        "KAFSCALE_CONNECTION_IDLE_MS",
        "A connection without traffic for this long is closed.",
        lambda settings: str(settings.idle_timeout_ms),
    ),
    BrokerConfig(
        "default.replication.factor",
        ConfigType.INT,
        "",
        "Always 1, because the object store keeps the copies.",
        lambda settings: "1",
    ),
    BrokerConfig(
        "delete.topic.enable", ConfigType.BOOLEAN, "", "Topics can always be deleted.", lambda settings: "true"
    ),
    BrokerConfig(
        "fetch.max.bytes",
        ConfigType.INT,
        "KAFSCALE_MAX_FETCH_BYTES",
        "The maximum number of record bytes in one Fetch response, regardless of what the client asks for. At least "
        "one complete batch is always returned.",
        lambda settings: str(settings.max_fetch_bytes),
    ),
    BrokerConfig(
        "max.connections",
        ConfigType.INT,
        "KAFSCALE_MAX_CONNECTIONS",
        "The maximum number of client connections. Further connections are closed immediately.",
        lambda settings: str(settings.max_connections),
    ),
    BrokerConfig(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS",
        "How long the first member of an empty group waits for others before partitions are assigned.",
        lambda settings: str(settings.group_initial_rebalance_delay_ms),
    ),
    BrokerConfig(
        "group.max.session.timeout.ms",
        ConfigType.INT,
        "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS",
        "The maximum session timeout that a member can request.",
        lambda settings: str(settings.group_max_session_timeout_ms),
    ),
    BrokerConfig(
        "group.max.size",
        ConfigType.INT,
        "KAFSCALE_GROUP_MAX_SIZE",
        "The maximum number of members of one group. Further members are refused.",
        lambda settings: str(settings.group_max_size),
    ),
    BrokerConfig(
        "group.min.session.timeout.ms",
        ConfigType.INT,
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS",
        "The minimum session timeout that a member can request.",
        lambda settings: str(settings.group_min_session_timeout_ms),
    ),
    BrokerConfig(
        "offset.metadata.max.bytes",
        ConfigType.INT,
        "KAFSCALE_GROUP_OFFSET_METADATA_MAX_BYTES",
        "The maximum length of the metadata that a client sends with a committed offset, in characters.",
        lambda settings: str(settings.group_offset_metadata_max_bytes),
    ),
    BrokerConfig(
        "offsets.retention.check.interval.ms",
        ConfigType.LONG,
        "KAFSCALE_GROUP_OFFSETS_RETENTION_CHECK_INTERVAL_MS",
        "How often groups are checked for expired offsets.",
        lambda settings: str(settings.group_offsets_retention_check_interval_ms),
    ),
    BrokerConfig(
        "offsets.retention.minutes",
        ConfigType.INT,
        "KAFSCALE_GROUP_OFFSETS_RETENTION_MINUTES",
        "How long committed offsets are kept after their group becomes empty or, in a group without members, after the "
        "commit.",
        lambda settings: str(settings.group_offsets_retention_minutes),
    ),
    BrokerConfig(
        "num.partitions",
        ConfigType.INT,
        "KAFSCALE_AUTO_CREATE_PARTITIONS",
        "The number of partitions of a topic that is created automatically, or by a CreateTopics request that does not "
        "specify it.",
        lambda settings: str(settings.auto_create_partitions),
    ),
    BrokerConfig(
        "socket.request.max.bytes",
        ConfigType.INT,
        "KAFSCALE_MAX_REQUEST_BYTES",
        "The maximum size of a request. If a larger request is announced, the connection is closed before the request "
        "is read.",
        lambda settings: str(settings.max_request_bytes),
    ),
)
_BEHIND_TOPICS = (
    BrokerConfig(
        definition.broker,
        definition.type,
        definition.variable,
        f"The default for topics that do not set {definition.name}. {definition.effect}",
        _behind(definition.name),
    )
    for definition in DEFINITIONS.values()
    if definition.broker
)

BROKER_CONFIGS: Mapping[str, BrokerConfig] = {
    config.name: config for config in sorted((*_OF_BROKERS, *_BEHIND_TOPICS), key=lambda config: config.name)
}
"""All broker configs by name, except those that differ for each gateway. None of them is dynamic."""

_OWN = {
    "advertised.listeners": (
        ConfigType.LIST,
        "KAFSCALE_ADVERTISED_LISTENERS",
        "The addresses that clients connect to.",
    ),
    "broker.id": (ConfigType.INT, "KAFSCALE_BROKER_ID", "The node id of this gateway."),
    "listeners": (ConfigType.LIST, "KAFSCALE_LISTENERS", "The addresses that this gateway listens on."),
    "node.id": (ConfigType.INT, "KAFSCALE_BROKER_ID", "The node id of this gateway."),
}
"""Type, variable and documentation of the configs that differ for each gateway."""


def topic_configs(settings: GatewaySettings, configs: Mapping[str, str]) -> list[ShownConfig]:
    """All configs of a topic that sets ``configs``, ordered by name."""
    shown = []
    for name, definition in sorted(DEFINITIONS.items()):
        own = (Synonym(name, configs[name], ConfigSource.TOPIC),) if name in configs else ()
        behind: tuple[Synonym, ...] = (Synonym(name, definition.default, ConfigSource.DEFAULT),)
        if definition.broker:
            behind = BROKER_CONFIGS[definition.broker].synonyms(settings)
        fallback = f" If a topic does not set it, {definition.variable} applies." if definition.variable else ""
        text = definition.effect + fallback
        shown.append(ShownConfig(name, (*own, *behind), definition.type, text, fixed=definition.fixed))
    return shown


def broker_configs(environment: Environment, node_id: int) -> list[ShownConfig]:
    """All configs of this gateway, ordered by name. All of them are read-only."""
    shown = [
        ShownConfig(name, config.synonyms(environment.settings), config.type, _documented(config), read_only=True)
        for name, config in BROKER_CONFIGS.items()
    ]
    own = {
        "advertised.listeners": ",".join(
            _address(each, each.advertised_host, each.advertised_port) for each in environment.listeners
        ),
        "broker.id": str(node_id),
        "listeners": ",".join(_address(each, each.host, each.port) for each in environment.listeners),
        "node.id": str(node_id),
    }
    for name, value in own.items():
        type_, variable, text = _OWN[name]
        synonym = Synonym(name, value, ConfigSource.STATIC_BROKER)
        shown.append(ShownConfig(name, (synonym,), type_, f"{text} Set by {variable}.", read_only=True))
    return sorted(shown, key=lambda config: config.name)


def _documented(config: BrokerConfig) -> str:
    return f"{config.documentation} Set by {config.variable}." if config.variable else config.documentation


def _address(listener: Listener, host: str, port: int) -> str:
    return f"{listener.name}://[{host}]:{port}" if ":" in host else f"{listener.name}://{host}:{port}"
