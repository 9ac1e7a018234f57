"""Requests whose answers must be those of Apache Kafka, and what of the answers is compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

SECONDS_5 = timedelta(seconds=5)
TRANSACTIONS = "__transaction_state"


def topic(name: str, partitions: int = 1, **configs: str) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def _everything(reply: Any) -> Any:
    return reply


@dataclass(frozen=True)
class Case:
    """A request in each of ``versions``, by default all that are advertised.

    ``of`` returns the part that is compared.
    """

    name: str
    api_key: int
    values: Mapping[str, Any]
    versions: range | None = None
    of: Callable[[Any], Any] = _everything


ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
NEW_ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def reassign(*moves: tuple[int, list[int] | None], topic: str = "t") -> dict[str, Any]:
    partitions = [{"partition_index": index, "replicas": replicas} for index, replicas in moves]
    topics = [{"name": topic, "partitions": partitions}]
    return {"topics": topics, "timeout": SECONDS_5, "allow_replication_factor_change": True}


def elect(named: list[dict[str, Any]] | None, kind: int = 0) -> dict[str, Any]:
    return {"election_type": kind, "topic_partitions": named, "timeout": SECONDS_5}


def quotas(*components: tuple[str, int, str | None], strict: bool = False) -> dict[str, Any]:
    return {
        "components": [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components],
        "strict": strict,
    }


def alter_quotas(*entries: tuple[Mapping[str, str | None], bool], validate_only: bool = False) -> dict[str, Any]:
    """Set a quota of each entity, or remove it if the entry says so."""
    return {
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": remove}],
            }
            for entity, remove in entries
        ],
        "validate_only": validate_only,
    }


def set_quotas(
    *entries: tuple[Mapping[str, str | None], Sequence[tuple[str, float | None]]], validate_only: bool = False
) -> dict[str, Any]:
    """Set quotas of each entity; None removes one."""
    return {
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits],
            }
            for entity, limits in entries
        ],
        "validate_only": validate_only,
    }


def alter_scram(
    deletions: Sequence[tuple[str, int]], upsertions: Sequence[tuple[str, int]] = (), *, iterations: int = 4096
) -> dict[str, Any]:
    password = {"iterations": iterations, "salt": b"salt", "salted_password": bytes(32)}
    return {
        "deletions": [{"name": name, "mechanism": mechanism} for name, mechanism in deletions],
        "upsertions": [{"name": name, "mechanism": mechanism, **password} for name, mechanism in upsertions],
    }


def transactions(*states: str, pattern: str | None = None) -> dict[str, Any]:
    return {
        "state_filters": list(states),
        "producer_id_filters": [1],
        "duration_filter": 5,
        "transactional_id_pattern": pattern,
    }


def grow(*assigned: list[int], count: int) -> dict[str, Any]:
    topic = {"name": "t", "count": count, "assignments": [{"broker_ids": brokers} for brokers in assigned]}
    return {"topics": [topic], "timeout": SECONDS_5, "validate_only": True}


def create_on(*assigned: list[int]) -> dict[str, Any]:
    by_hand = [{"partition_index": index, "broker_ids": brokers} for index, brokers in enumerate(assigned)]
    assigned_by_hand = {**topic("new", -1), "replication_factor": -1, "assignments": by_hand}
    return {"topics": [assigned_by_hand], "timeout": SECONDS_5, "validate_only": True}


def broker_configs(operation: int, *names: str) -> dict[str, Any]:
    configs = [{"name": name, "config_operation": operation, "value": None} for name in names]
    return {"resources": [{"resource_type": 4, "resource_name": "1", "configs": configs}], "validate_only": False}


def delete_records(topic: str, *offsets: int, timeout: timedelta = SECONDS_5) -> dict[str, Any]:
    """Delete records of partition 0, which exists, and of later partitions, which do not."""
    partitions = [{"partition_index": index, "offset": offset} for index, offset in enumerate(offsets)]
    return {"topics": [{"name": topic, "partitions": partitions}], "timeout": timeout}


def create_with(**configs: str) -> dict[str, Any]:
    return {"topics": [topic("new", 1, **configs)], "timeout": SECONDS_5, "validate_only": True}


def set_by_topic(reply: Any) -> Any:
    """Return the configs set by the topic itself. Defaults may differ between brokers."""
    (topic,) = reply["topics"]
    own = [each for each in topic["configs"] if each["config_source"] == 1]
    return topic["error_code"], [(each["name"], each["value"]) for each in own]


def describe_config(topic: str, name: str) -> dict[str, Any]:
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": [name]}
    return {"resources": [resource], "include_synonyms": True, "include_documentation": False}


def epoch_end(epoch: int, *, current: int) -> dict[str, Any]:
    asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    return {"replica_id": -1, "topics": [{"topic": "as-produced", "partitions": [asked]}]}


def fetch(topic: str) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    limits = {"max_wait": SECONDS_5, "min_bytes": 1, "max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        **limits,
    }


def read(reply: Any) -> Any:
    """Return errors, ends and whether records exist. Epochs and append times differ between brokers."""
    (part,) = reply["responses"][0]["partitions"]
    return part["error_code"], part["high_watermark"], part["last_stable_offset"], bool(part["records"])


def refusals(reply: Any) -> Any:
    """Return error codes, and messages if there is an error."""
    return [(each["error_code"], each["error_message"]) for each in reply.get("topics") or reply["results"]]


def in_any_order(reply: Any) -> Any:
    """Leave out the topic in which Kafka keeps transactions."""
    kept = [each for each in reply["replica_election_results"] if each["topic"] != TRANSACTIONS]
    return sorted(map(repr, kept)), reply.get("error_code")


def by_entity(reply: Any) -> Any:
    for entry in reply["entries"]:
        entry["entity"].sort(key=lambda each: each["entity_type"])
        entry.get("values", []).sort(key=lambda each: each["key"])
    return sorted(reply["entries"], key=lambda each: repr(each["entity"]))


def by_user(reply: Any) -> Any:
    for user in reply["results"]:
        # Kafka returns the credentials of a user in any order.
        user.get("credential_infos", []).sort(key=lambda each: each["mechanism"])
    return sorted(reply["results"], key=lambda each: each["user"])


def without_loggers(reply: Any) -> Any:
    """Leave out the second entry of each broker that Kafka lists for its log levels, which cannot be set here."""
    others = [each for each in reply["config_resources"] if each["resource_name"] != TRANSACTIONS]
    kept = [each for each in others if each.get("resource_type", 16) != 8]
    return reply["error_code"], sorted((each.get("resource_type", 16), each["resource_name"]) for each in kept)


def without_messages(reply: Any) -> Any:
    """Leave out messages of Kafka that name Java classes or other limits."""
    if isinstance(reply, dict):
        return {name: without_messages(value) for name, value in reply.items() if name != "error_message"}
    return [without_messages(item) for item in reply] if isinstance(reply, list) else reply


def without_times(reply: Any) -> Any:
    """Leave out times: Kafka returns the batch's largest timestamp instead of the append time."""
    (partition,) = reply["topics"][0]["partitions"]
    return [{**known, "last_timestamp": None} for known in partition["active_producers"]]


def metadata_version(reply: Any) -> Any:
    """Leave out other features, which are not supported here."""
    return [each for each in reply["finalized_features"] if each["name"] == "metadata.version"]


CASES = (
    Case("sasl", 17, {"mechanism": "PLAIN"}),
    Case("acls", 29, ANY_ACL),
    Case("new-acls", 30, {"creations": [NEW_ACL, NEW_ACL]}),
    Case("no-new-acls", 30, {"creations": []}),
    Case("old-acls", 31, {"filters": [ANY_ACL, ANY_ACL]}),
    Case("elect-all", 43, elect(None), of=in_any_order),
    Case("elect-unclean", 43, elect(None, 1), range(1, 3), of=in_any_order),
    Case(
        "elect-some",
        43,
        elect([{"topic": "t", "partitions": [0, 1, 9]}, {"topic": "unknown", "partitions": [0]}]),
    ),
    Case("elect-none", 43, elect([])),
    Case("elect-otherwise", 43, elect([{"topic": "t", "partitions": [0]}], 7), range(1, 3)),
    Case("move-nowhere", 45, reassign((0, [1]), (0, [1]), (1, None), (9, [1]))),
    Case("move-unknown", 45, reassign((0, [1]), topic="unknown")),
    Case("move-to-no-broker", 45, reassign((0, [7]), (1, [1, 7]))),
    Case("move-to-a-broker-twice", 45, reassign((0, [1, 1]))),
    Case("move-to-none", 45, reassign((0, []))),
    Case("moves", 46, {"topics": None, "timeout": SECONDS_5}),
    Case("moves-of", 46, {"topics": [{"name": "t", "partition_indexes": [0, 9]}], "timeout": SECONDS_5}),
    Case("quotas", 48, quotas()),
    Case("quotas-of-users", 48, quotas(("user", 0, "a"), ("client-id", 1, None))),
    Case("quotas-of-others", 48, quotas(("team", 2, None))),
    Case("quotas-of-empty", 48, quotas(("", 2, None))),
    Case("quotas-twice", 48, quotas(("user", 2, None), ("user", 1, None))),
    Case("quotas-mixed", 48, quotas(("ip", 2, None), ("user", 2, None))),
    Case("quotas-unmatched", 48, quotas(("user", 9, None))),
    Case("quotas-without-name", 48, quotas(("user", 0, None))),
    Case("quotas-default-with-name", 48, quotas(("user", 1, "a"))),
    Case("quotas-any-with-name", 48, quotas(("user", 2, "a"))),
    Case("scram", 50, {"users": None}),
    Case("scram-of", 50, {"users": [{"name": "a"}, {"name": "b"}, {"name": "b"}]}),
    Case(
        "new-quotas-of-nobody", 49, alter_quotas(({}, False), ({"team": "a"}, True), ({"": "a"}, False)), of=by_entity
    ),
    Case("new-quotas-without-name", 49, alter_quotas(({"user": ""}, False), ({"client-id": ""}, True)), of=by_entity),
    Case("new-quotas-mixed", 49, alter_quotas(({"ip": None, "user": None}, False)), of=by_entity),
    Case("no-new-quotas", 49, alter_quotas()),
    Case(
        "old-quotas",
        49,
        alter_quotas(({"user": "a", "client-id": None}, True), ({"ip": "127.0.0.1"}, True)),
        of=by_entity,
    ),
    Case("old-quotas-tried", 49, alter_quotas(({"user": "a"}, True), validate_only=True)),
    Case(
        "new-quotas",
        49,
        set_quotas(
            ({"user": "a"}, [("producer_byte_rate", 1024.0), ("request_percentage", 12.5)]),
            ({"user": None}, [("consumer_byte_rate", 2048.0000001)]),
            ({"user": "a", "client-id": "c"}, [("controller_mutation_rate", 0.5)]),
            ({"user": "a", "client-id": None}, [("producer_byte_rate", 1.0)]),
            ({"user": None, "client-id": "c"}, [("producer_byte_rate", 2.0)]),
            ({"client-id": "c d,e=f/g"}, [("consumer_byte_rate", 9e18)]),
            ({"client-id": None}, [("consumer_byte_rate", None)]),
            ({"ip": "10.1.2.3"}, [("connection_creation_rate", 7.0)]),
            ({"ip": None}, [("connection_creation_rate", 8000.0)]),
            ({"user": "b"}, []),
        ),
        of=by_entity,
    ),
    Case(
        "new-quotas-invalid",
        49,
        set_quotas(
            ({"user": "a"}, [("consumer_byte_rate", 5.5)]),
            ({"user": "b"}, [("producer_byte_rate", 0.0)]),
            ({"user": "c"}, [("producer_byte_rate", -1.0)]),
            ({"user": "d"}, [("connection_creation_rate", 1.0)]),
            ({"user": "e"}, [("consumer_byte_rate", 1e20)]),
            ({"user": "g"}, [("bytes", 1.0)]),
            ({"client-id": "a"}, [("SCRAM-SHA-256", 1.0)]),
            ({"client-id": "b"}, [("consumer_byte_rate", 0.99999999)]),
            ({"ip": "127.0.0.1"}, [("producer_byte_rate", 1.0)]),
            ({"ip": "127.0.0.2"}, [("connection_creation_rate", 1.5)]),
            ({"ip": "127.0.0.3"}, [("connection_creation_rate", 3e9)]),
            ({"ip": "no host"}, [("connection_creation_rate", 1.0)]),
        ),
        of=by_entity,
    ),
    Case(
        "new-quotas-twice",
        49,
        set_quotas(
            ({"user": "x", "client-id": "y"}, [("producer_byte_rate", 5.0)]),
            ({"client-id": "y", "user": "x"}, [("producer_byte_rate", 6.0)]),
            ({"user": "y", "client-id": None}, [("producer_byte_rate", 5.0), ("producer_byte_rate", 6.0)]),
            ({"ip": "10.9.9.9"}, [("connection_creation_rate", None), ("connection_creation_rate", 6.0)]),
            ({"team": "z"}, []),
            ({"team": "z"}, []),
        ),
        of=by_entity,
    ),
    Case(
        "new-quotas-tried",
        49,
        set_quotas(
            ({"user": "q"}, [("producer_byte_rate", 5.0)]), ({"user": "r"}, [("bytes", 5.0)]), validate_only=True
        ),
        of=by_entity,
    ),
    Case("quotas-there", 48, quotas(), of=by_entity),
    Case("quotas-there-strict", 48, quotas(strict=True), of=by_entity),
    Case("quotas-of-one-user", 48, quotas(("user", 0, "a")), of=by_entity),
    Case("quotas-of-one-user-alone", 48, quotas(("user", 0, "a"), strict=True), of=by_entity),
    Case("quotas-of-the-default-user", 48, quotas(("user", 1, None)), of=by_entity),
    Case("quotas-of-any-user", 48, quotas(("user", 2, None)), of=by_entity),
    Case("quotas-of-any-user-alone", 48, quotas(("user", 2, None), strict=True), of=by_entity),
    Case("quotas-of-any-user-and-client", 48, quotas(("user", 2, None), ("client-id", 2, None)), of=by_entity),
    Case("quotas-of-a-user-and-any-client", 48, quotas(("user", 0, "a"), ("client-id", 2, None)), of=by_entity),
    Case("quotas-of-a-client", 48, quotas(("client-id", 0, "c"), strict=True), of=by_entity),
    Case("quotas-of-addresses", 48, quotas(("ip", 2, None)), of=by_entity),
    Case("quotas-of-an-address", 48, quotas(("ip", 0, "10.1.2.3"), strict=True), of=by_entity),
    Case(
        "half-of-old-quotas",
        49,
        set_quotas(
            ({"user": "a"}, [("producer_byte_rate", None), ("request_percentage", 13.0), ("consumer_byte_rate", 1.0)]),
            ({"user": None}, [("consumer_byte_rate", None), ("bytes", None)]),
            ({"ip": "10.1.2.3"}, [("connection_creation_rate", None)]),
            ({"user": "nobody"}, [("bytes", None)]),
        ),
        of=by_entity,
    ),
    Case("quotas-of-the-rest", 48, quotas(), of=by_entity),
    Case("old-scram", 51, alter_scram([("a", 1), ("b", 2), ("c", 1), ("c", 2)]), of=by_user),
    Case("old-scram-unknown", 51, alter_scram([("a", 9), ("b", 0), ("", 1)]), of=by_user),
    Case("new-scram-unknown", 51, alter_scram([("a", 1)], [("b", 9), ("c", 0), ("", 1), ("a", 2)]), of=by_user),
    Case("no-new-scram", 51, alter_scram([])),
    Case("new-scram", 51, alter_scram([], [("x", 1), ("y", 2), ("z", 2), ("z", 1)]), of=by_user),
    Case("more-new-scram", 51, alter_scram([], [("x", 2)]), of=by_user),
    Case("new-scram-twice", 51, alter_scram([], [("z", 1), ("z", 1)]), of=by_user),
    Case("new-and-old-scram", 51, alter_scram([("x", 1)], [("x", 1), ("x", 2)]), of=by_user),
    Case("new-scram-too-few-iterations", 51, alter_scram([], [("z", 1)], iterations=4095), of=by_user),
    Case("new-scram-too-many-iterations", 51, alter_scram([], [("z", 1)], iterations=16385), of=by_user),
    Case("scram-there", 50, {"users": None}, of=by_user),
    Case("scram-of-one", 50, {"users": [{"name": "y"}, {"name": "z"}]}, of=by_user),
    Case("half-of-old-scram", 51, alter_scram([("x", 1), ("y", 1)]), of=by_user),
    Case("scram-of-the-rest", 50, {"users": None}, of=by_user),
    Case("old-scram-twice", 51, alter_scram([("x", 2), ("x", 2), ("y", 2)]), of=by_user),
    Case("old-scram-there", 51, alter_scram([("x", 2)]), of=by_user),
    Case("scram-of-nobody", 50, {"users": None}),
    Case(
        "producers",
        61,
        {"topics": [{"name": name, "partition_indexes": [0, 9]} for name in ("t", "unknown", "a b")]},
        of=without_messages,
    ),
    Case(
        "idempotent-producers",
        61,
        {"topics": [{"name": "as-produced", "partition_indexes": [0]}]},
        of=without_times,
    ),
    Case("transactions-of", 65, {"transactional_ids": ["a", "b", "b", ""]}),
    Case("transactions-of-none", 65, {"transactional_ids": []}),
    Case("transactions", 66, transactions()),
    Case("transactions-by-state", 66, transactions("Ongoing", "Asleep", "PrepareEpochFence")),
    Case("transactions-by-pattern", 66, transactions(pattern="a.*"), range(2, 3)),
    Case("transactions-by-no-pattern", 66, transactions(pattern="("), range(2, 3)),
    Case(
        "consumer-protocol",
        68,
        {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": SECONDS_5,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        },
        of=without_messages,
    ),
    Case("resources", 74, {"resource_types": []}, of=without_loggers),
    Case("resources-of", 74, {"resource_types": [2, 4, 16, 32]}, of=without_loggers),
    Case("resources-unknown", 74, {"resource_types": [99]}, range(1, 2), of=without_loggers),
    Case("grow-on-no-broker", 37, grow([7], count=3)),
    Case("grow-on-a-broker-twice", 37, grow([1, 1], count=3)),
    Case("grow-on-none", 37, grow([], count=3)),
    Case("grow", 37, grow([1], [1], count=4)),
    Case("create-on-no-broker", 19, create_on([1], [7]), range(2, 8), of=refusals),
    Case("create-on-a-broker-twice", 19, create_on([1, 1]), range(2, 8), of=refusals),
    Case("create-on-none", 19, create_on([]), range(2, 8), of=refusals),
    Case("create-unevenly", 19, create_on([1], []), range(2, 8), of=refusals),
    Case("create", 19, create_on([1], [1]), range(2, 8), of=refusals),
    Case(
        "create-with-spaces",
        19,
        create_with(cleanup_policy=" compact , delete", preallocate="TRUE ", retention_ms="+5"),
        range(5, 8),
        of=set_by_topic,
    ),
    Case("created-with-spaces", 32, describe_config("compact", "cleanup.policy")),
    Case("end-of-epoch-0", 23, epoch_end(0, current=0), range(2, 5)),
    Case("end-of-epoch-0-now-unknown", 23, epoch_end(0, current=-1), range(2, 5)),
    Case("end-of-no-epoch", 23, epoch_end(9, current=-1), range(2, 5)),
    Case("delete-broker-configs", 44, broker_configs(1, "leader.replication.throttled.rate")),
    Case("keep-compacted-records", 21, delete_records("compact", -1, 0)),
    Case("keep-compacted-records-above-the-end", 21, delete_records("compact", 9)),
    Case("keep-compacted-records-at-once", 21, delete_records("compact", 0, timeout=timedelta())),
    Case("keep-records-that-no-policy-removes", 21, delete_records("kept", 0)),
    Case("read-zstd-topic", 1, fetch("zstd"), range(4, 13), of=read),
    Case("read-zstd-batches", 1, fetch("as-produced"), range(4, 13), of=read),
    Case(
        "features",
        18,
        {"client_software_name": "test", "client_software_version": "1"},
        range(3, 5),
        of=metadata_version,
    ),
)
