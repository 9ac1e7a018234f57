from dataclasses import dataclass

import pytest

from kafscale.config.variables import VARIABLES
from kafscale.records.codecs import Codec
from kafscale.topics.configs import InvalidConfig, TopicConfig, default_values, validate
from kafscale.topics.definitions import DEFINITIONS, LONGEST_FLUSH_MS


def test_valid_values_are_stored_as_kafka_displays_them() -> None:
    assert validate(
        {
            "retention.ms": " 1000 ",
            "compression.type": "none",
            "preallocate": "TRUE",
            "max.message.bytes": "+10",
            "cleanup.policy": "delete",
            "min.insync.replicas": "2",
            "min.cleanable.dirty.ratio": "0.25",
            "follower.replication.throttled.replicas": "*",
        }
    ) == {
        "cleanup.policy": "delete",
        "compression.type": "uncompressed",
        "follower.replication.throttled.replicas": "*",
        "max.message.bytes": "10",
        "min.cleanable.dirty.ratio": "0.25",
        "min.insync.replicas": "2",
        "preallocate": "true",
        "retention.ms": "1000",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.config", "1"),
        ("cleanup.policy", "Compact"),
        ("cleanup.policy", "compact,"),
        ("cleanup.policy", "compact,none"),
        ("compression.type", "zip"),
        ("compression.type", "SNAPPY"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "2147483648"),
        ("max.message.bytes", "1MB"),
        ("max.message.bytes", ""),
        ("retention.ms", "-2"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "1.5"),
        ("message.timestamp.type", "createtime"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "1"),
        ("segment.ms", None),
    ],
)
def test_an_invalid_config_is_refused_by_name(name: str, value: str | None) -> None:
    with pytest.raises(InvalidConfig) as caught:
        validate({"retention.bytes": "1", name: value})
    assert caught.value.name == name
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "stored", "compacted", "retention"),
    [
        ("delete", "delete", False, (5, 7)),
        ("compact", "compact", True, (-1, -1)),
        ("compact,delete", "compact,delete", True, (5, 7)),
        (" delete , compact", "delete,compact", True, (5, 7)),
        ("compact,compact", "compact,compact", True, (-1, -1)),
        ("", "", False, (-1, -1)),
    ],
)
def test_a_cleanup_policy_is_kept_as_set_and_decides_what_retention_may_delete(
    policy: str, stored: str, compacted: bool, retention: tuple[int, int]
) -> None:
    configs = validate({"cleanup.policy": policy, "retention.ms": "5", "retention.bytes": "7"})
    assert configs["cleanup.policy"] == stored
    config = TopicConfig.of(configs, {"cleanup.policy": "delete"})
    assert (config.compacted, (config.retention_ms, config.retention_bytes)) == (compacted, retention)


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_every_default_is_valid_and_in_its_stored_form(name: str) -> None:
    assert validate({name: DEFINITIONS[name].default}) == {name: DEFINITIONS[name].default}


def test_a_topic_without_configs_has_the_defaults_of_the_process_then_of_kafka() -> None:
    plain = TopicConfig.of({})
    assert plain == TopicConfig(
        compression=Codec.NONE,
        max_message_bytes=1048588,
        log_append_time=False,
        timestamp_before_max_ms=2**63 - 1,
        timestamp_after_max_ms=3600000,
        compacted=False,
        deletes=True,
        retention_ms=604800000,
        retention_bytes=-1,
        segment_bytes=1073741824,
        segment_ms=604800000,
        min_cleanable_dirty_ratio=0.5,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=2**63 - 1,
        delete_retention_ms=86400000,
        merges=False,
        flush_ms=10000,
    )
    process = {"compression.type": "snappy", "max.message.bytes": "7"}
    assert TopicConfig.of({}, process).compression is Codec.SNAPPY
    assert TopicConfig.of({"compression.type": "zstd"}, process).compression is Codec.ZSTD
    assert TopicConfig.of({"compression.type": "producer"}, process).compression is Codec.NONE
    assert TopicConfig.of({"compression.type": "uncompressed"}, process).compression is Codec.NONE
    assert TopicConfig.of({}, process).max_message_bytes == 7


@dataclass(frozen=True)
class _Cluster:
    cleanup_policy: str = "compact,delete"
    compression_codec: str = "none"
    flush_interval_ms: int = 250
    merge: str = "on"
    retention_bytes: int = 9
    retention_ms: int = 8
    segment_bytes: int = 1 << 20


def test_the_clusters_defaults_apply_if_a_topic_sets_nothing() -> None:
    defaults = default_values(_Cluster())
    set_by_variables = {name for name, definition in DEFINITIONS.items() if definition.variable}
    assert {name: defaults[name] for name in set_by_variables} == {
        "cleanup.policy": "compact,delete",
        "compression.type": "uncompressed",
        "flush.ms": "250",
        "kafscale.merge.enable": "true",
        "retention.bytes": "9",
        "retention.ms": "8",
        "segment.bytes": "1048576",
    }
    assert validate(defaults) == defaults
    config = TopicConfig.of({}, defaults)
    assert (config.flush_ms, config.retention_bytes, config.retention_ms, config.segment_bytes) == (250, 9, 8, 1 << 20)


@pytest.mark.parametrize(
    ("flush_ms", "counts"),
    [
        ("0", 0),
        ("1", 1),
        (str(LONGEST_FLUSH_MS), LONGEST_FLUSH_MS),
        (str(LONGEST_FLUSH_MS + 1), 250),
        (str(2**63 - 1), 250),
    ],
)
def test_no_topics_records_wait_forever(flush_ms: str, counts: int) -> None:
    assert TopicConfig.of({"flush.ms": flush_ms}, default_values(_Cluster())).flush_ms == counts


def test_variables_exist_and_a_broker_config_belongs_to_only_one_topic_config() -> None:
    assert {definition.variable for definition in DEFINITIONS.values()} - {""} <= set(VARIABLES)
    assert all(definition.broker for definition in DEFINITIONS.values() if definition.variable)
    behind = [definition.broker for definition in DEFINITIONS.values() if definition.broker]
    assert len(set(behind)) == len(behind)


def test_timestamp_bounds_and_the_older_name_for_both() -> None:
    older = {"message.timestamp.difference.max.ms": "5"}
    both = TopicConfig.of(older | {"message.timestamp.after.max.ms": "9"})
    assert (both.timestamp_before_max_ms, both.timestamp_after_max_ms) == (5, 9)
    assert TopicConfig.of({"message.timestamp.type": "LogAppendTime"}).log_append_time
