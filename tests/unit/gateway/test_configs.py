"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: what clients see and may change."""

from dataclasses import asdict
from typing import Any

import pytest
import trio
from kio.schema.errors import ErrorCode

from kafscale import paths
from kafscale.config.group_limits import GroupSettings
from kafscale.config.settings import load
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import Fault
from kafscale.topics.definitions import DEFINITIONS
from services.coordinator.limits import GroupLimits
from services.coordinator.settings import CoordinatorSettings
from services.gateway.topics.configs import BROKER_CONFIGS
from tests.support.gateway.asking import produce
from tests.support.gateway.exchanges import nested
from tests.support.gateway.harness import NAMESPACE, Client, Harness, batch, running_gateway

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
_OF_GROUPS = ("group.", "offset.", "offsets.")
THROTTLED = "leader.replication.throttled.replicas"


async def describe(
    client: Client, name: str, *keys: str, kind: int = TOPIC, synonyms: bool = False, documentation: bool = False
) -> Any:
    resource = nested(32, 4, "DescribeConfigsResource")
    requested = resource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
    reply = await client.ask(
        32, 4, resources=(requested,), include_synonyms=synonyms, include_documentation=documentation
    )
    return reply.results[0]


async def alter(client: Client, configs: list[tuple[str, str | None]], *, name: str = "t", kind: int = TOPIC) -> Any:
    config = nested(33, 2, "AlterableConfig")
    resource = nested(33, 2, "AlterConfigsResource")(
        resource_type=kind, resource_name=name, configs=tuple(config(name=n, value=v) for n, v in configs)
    )
    return (await client.ask(33, 2, resources=(resource,), validate_only=False)).responses[0]


async def change(
    client: Client, *changes: tuple[str, int, str | None], name: str = "t", kind: int = TOPIC, times: int = 1
) -> Any:
    config = nested(44, 1, "AlterableConfig")
    resource = nested(44, 1, "AlterConfigsResource")(
        resource_type=kind,
        resource_name=name,
        configs=tuple(config(name=n, config_operation=operation, value=v) for n, operation, v in changes),
    )
    return (await client.ask(44, 1, resources=(resource,) * times, validate_only=False)).responses[-1]


def stored(harness: Harness) -> dict[str, str]:
    return dict(harness.catalog.view.by_name["t"].configs)


async def test_a_topic_is_described_with_all_or_the_requested_configs() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        client = await harness.connect()
        described = await describe(client, "t", documentation=True)
        assert [config.name for config in described.configs] == sorted(DEFINITIONS)
        for config in described.configs:
            assert (config.config_source, config.read_only, config.is_sensitive, config.synonyms) == (
                5,
                False,
                False,
                (),
            )
            assert config.config_type == DEFINITIONS[config.name].type
            assert config.documentation.startswith(DEFINITIONS[config.name].effect)
        two = await describe(client, "t", "retention.ms", "no.such", "flush.ms")
        assert [(config.name, config.documentation) for config in two.configs] == [
            ("flush.ms", None),
            ("retention.ms", None),
        ]


async def test_the_sources_of_a_config_are_listed_down_to_the_default() -> None:
    async with running_gateway(retention_ms=5000, compression_codec="none") as harness:
        await harness.topic("t", retention_ms="7")
        client = await harness.connect()
        (retention,) = (await describe(client, "t", "retention.ms", synonyms=True)).configs
        assert (retention.value, retention.config_source) == ("7", 1)
        assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
            ("retention.ms", "7", 1),
            ("log.retention.ms", "5000", 4),
            ("log.retention.ms", "604800000", 5),
        ]
        (compression,) = (await describe(client, "t", "compression.type", synonyms=True)).configs
        assert (compression.value, compression.config_source) == ("uncompressed", 4)
        (throttled,) = (await describe(client, "t", THROTTLED, synonyms=True)).configs
        assert [(each.name, each.value, each.source) for each in throttled.synonyms] == [(THROTTLED, "", 5)]


async def test_the_configs_of_a_gateway_are_read_only() -> None:
    async with running_gateway(auto_create_partitions=6, segment_bytes=1 << 20) as harness:
        client = await harness.connect()
        described = await describe(client, "0", kind=BROKER, synonyms=True, documentation=True)
        configs = {config.name: config for config in described.configs}
        assert list(configs) == sorted({*BROKER_CONFIGS, "advertised.listeners", "broker.id", "listeners", "node.id"})
        assert all(config.read_only and config.documentation for config in configs.values())
        port = harness.listeners[0].port
        values = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "broker.id": "0",
            "num.partitions": "6",
            "default.replication.factor": "1",
            "log.segment.bytes": str(1 << 20),
            "log.flush.interval.ms": "500",
            "auto.create.topics.enable": "true",
        }
        assert {name: configs[name].value for name in values} == values
        partitions = configs["num.partitions"]
        assert (partitions.config_source, partitions.config_type) == (4, 3)
        assert [(each.value, each.source) for each in partitions.synonyms] == [("6", 4), ("1", 5)]
        assert "KAFSCALE_AUTO_CREATE_PARTITIONS" in partitions.documentation
        assert configs["log.flush.interval.ms"].config_source == 5
        assert (await describe(client, "", kind=BROKER)).configs == ()


async def test_a_gateway_describes_the_group_limits_of_the_coordinators() -> None:
    environ = {
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "1",
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS": "2",
        "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS": "3",
        "KAFSCALE_GROUP_MAX_SIZE": "4",
        "KAFSCALE_GROUP_OFFSETS_RETENTION_MINUTES": "5",
        "KAFSCALE_GROUP_OFFSETS_RETENTION_CHECK_INTERVAL_MS": "600",
        "KAFSCALE_GROUP_OFFSET_METADATA_MAX_BYTES": "7",
    }
    set_to = asdict(load(GroupSettings, environ))
    limits = load(CoordinatorSettings, environ).limits()
    async with running_gateway(**set_to) as harness:
        client = await harness.connect()
        described = await describe(client, "0", kind=BROKER, synonyms=True, documentation=True)
        configs = {config.name: config for config in described.configs}
    assert {
        name: [each.value for each in configs[name].synonyms] for name in configs if name.startswith(_OF_GROUPS)
    } == {
        "group.initial.rebalance.delay.ms": [str(limits.initial_rebalance_delay_ms), "3000"],
        "group.min.session.timeout.ms": [str(limits.min_session_timeout_ms), "6000"],
        "group.max.session.timeout.ms": [str(limits.max_session_timeout_ms), "1800000"],
        "group.max.size": [str(limits.max_size), "10000"],
        "offsets.retention.minutes": [str(limits.offsets_retention_ms // 60_000), "10080"],
        "offsets.retention.check.interval.ms": ["600", "600000"],
        "offset.metadata.max.bytes": [str(limits.offset_metadata_max_bytes), "4096"],
    }
    assert "KAFSCALE_GROUP_MAX_SIZE" in configs["group.max.size"].documentation
    types = {name: configs[name].config_type for name in configs if name.startswith(_OF_GROUPS)}
    assert types.pop("offsets.retention.check.interval.ms") == 5
    assert set(types.values()) == {3}


def test_group_limits_have_kafkas_defaults_except_the_maximum_size() -> None:
    assert CoordinatorSettings().limits() == GroupLimits(max_size=10_000)


async def test_min_insync_replicas_refuses_no_producer_and_is_described_as_1() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", min_insync_replicas="2")
        client = await harness.connect()
        (described,) = (await describe(client, "t", "min.insync.replicas", documentation=True, synonyms=True)).configs
        assert (described.value, described.config_source) == ("1", 1)
        assert [(each.value, each.source) for each in described.synonyms] == [("2", 1), ("1", 5)]
        assert "without effect" in described.documentation
        assert (await produce(client, batch(), acks=-1)).error_code == ErrorCode.none


async def test_alter_configs_replaces_all_configs_of_a_topic() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", retention_ms="5", flush_ms="7")
        client = await harness.connect()
        assert (await alter(client, [("compression.type", "none"), ("flush.ms", " 9 ")])).error_code == 0
        assert stored(harness) == {"compression.type": "uncompressed", "flush.ms": "9"}
        assert (await alter(client, [])).error_code == 0
        assert stored(harness) == {}


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("no.such", "1")], ErrorCode.invalid_config),
        ([("cleanup.policy", "compress")], ErrorCode.invalid_config),
        ([("max.message.bytes", "1"), ("retention.ms", "-7")], ErrorCode.invalid_config),
        ([("retention.ms", None)], ErrorCode.invalid_request),
        ([("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.invalid_request),
    ],
)
async def test_an_invalid_config_leaves_the_resource_unchanged(
    configs: list[tuple[str, str | None]], code: ErrorCode
) -> None:
    async with running_gateway() as harness:
        await harness.topic("t", flush_ms="7")
        client = await harness.connect()
        for answer in (
            await alter(client, configs),
            await change(client, *((name, SET, value) for name, value in configs)),
        ):
            assert answer.error_code == code
            assert any(name in answer.error_message for name, _ in configs) or "duplicate" in answer.error_message
        assert stored(harness) == {"flush.ms": "7"}


async def test_a_list_config_is_changed_item_by_item() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        client = await harness.connect()
        for operation, value, expected in (
            (APPEND, "0:1", "0:1"),
            (APPEND, "1:1, 0:1,2:1", "0:1,1:1,2:1"),
            (SUBTRACT, "1:1,9:9", "0:1,2:1"),
            (SUBTRACT, "0:1,2:1", ""),
        ):
            assert (await change(client, (THROTTLED, operation, value))).error_code == 0
            assert stored(harness) == {THROTTLED: expected}


async def test_a_cleanup_policy_is_changed_item_by_item_and_described_as_set() -> None:
    async with running_gateway(cleanup_policy="compact") as harness:
        await harness.topic("t")
        client = await harness.connect()
        for operation, value, expected in (
            (APPEND, "delete", "compact,delete"),
            (APPEND, "compact", "compact,delete"),
            (SUBTRACT, "compact", "delete"),
            (SUBTRACT, "delete", ""),
            (SET, " delete, compact", "delete,compact"),
        ):
            assert (await change(client, ("cleanup.policy", operation, value))).error_code == 0
            assert stored(harness) == {"cleanup.policy": expected}
            (described,) = (await describe(client, "t", "cleanup.policy")).configs
            assert described.value == expected


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (("retention.ms", APPEND, "1"), ErrorCode.invalid_config),
        (("no.such", SUBTRACT, "1"), ErrorCode.invalid_config),
        (("retention.ms", 9, "1"), ErrorCode.invalid_request),
        ((THROTTLED, APPEND, None), ErrorCode.invalid_request),
    ],
)
async def test_invalid_config_operations_are_refused(made: tuple[str, int, str | None], code: ErrorCode) -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        answer = await change(await harness.connect(), made)
        assert answer.error_code == code
        assert made[0] in answer.error_message
        assert stored(harness) == {}


async def test_deleting_an_unset_config_succeeds() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", flush_ms="7")
        client = await harness.connect()
        assert (await change(client, ("retention.ms", DELETE, None), ("flush.ms", DELETE, None))).error_code == 0
        assert stored(harness) == {}


async def test_resources_without_changeable_configs_are_refused() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        client = await harness.connect()
        for name in ("0", ""):
            refused = await change(client, ("log.retention.ms", SET, "1"), name=name, kind=BROKER)
            assert refused.error_code == ErrorCode.invalid_request
            assert "Cannot update these configs dynamically: log.retention.ms" in refused.error_message
            deleted = await change(client, ("leader.replication.throttled.rate", DELETE, None), name=name, kind=BROKER)
            assert deleted.error_code == 0
        assert (await alter(client, [], name="0", kind=BROKER)).error_code == 0
        assert (await alter(client, [], name="7", kind=BROKER)).error_code == ErrorCode.invalid_request
        assert (await alter(client, [], kind=8)).error_code == ErrorCode.invalid_request
        assert (await alter(client, [], name="a b")).error_code == ErrorCode.invalid_topic_exception
        twice = await change(client, ("retention.ms", SET, "1"), times=2)
        assert twice.error_code == ErrorCode.invalid_request
        assert stored(harness) == {}


async def test_a_changed_max_message_bytes_applies_to_the_next_batch() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        client = await harness.connect()
        assert (await produce(client, batch(bytes(5000)))).error_code == 0
        assert (await change(client, ("max.message.bytes", SET, "1000"))).error_code == 0
        assert (await produce(client, batch(bytes(5000)))).error_code == ErrorCode.message_too_large
        assert (await change(client, ("max.message.bytes", DELETE, None))).error_code == 0
        assert (await produce(client, batch(bytes(5000)))).error_code == 0


async def test_configs_that_another_gateway_changes_meanwhile_are_kept() -> None:
    async with running_gateway() as harness:
        made = await harness.topic("t")
        key = paths.topic_key(NAMESPACE, "t")
        # This gateway's change waits before it reads the stored configs.
        harness.metadata.faults.append(Fault(method="get", key=key, delay=0.2))
        client = await harness.connect()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                assert (await change(client, ("flush.ms", SET, "1"))).error_code == 0

            await trio.sleep(0.1)
            await harness.metadata.txn((), [Put(key, made.configured({"retention.ms": "5"}).value())])
        assert stored(harness) == {"retention.ms": "5", "flush.ms": "1"}
