"""All Kafka APIs that this gateway speaks. ApiVersions, routing and docs/reference/protocol.md derive from this list.

``python -m services.gateway.registry`` prints docs/reference/protocol.md.
"""

import importlib
import sys

from kafscale.kafka.codec import is_flexible
from services.gateway.api import Api
from services.gateway.apis import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_handshake,
    sync_group,
)
from services.gateway.unsupported import UNSUPPORTED

_OTHERS = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    sasl_handshake.API,
    create_topics.API,
    delete_topics.API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_acls.API,
    create_acls.API,
    delete_acls.API,
    describe_configs.API,
    alter_configs.API,
    describe_log_dirs.API,
    create_partitions.API,
    delete_groups.API,
    elect_leaders.API,
    incremental_alter_configs.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    offset_delete.API,
    describe_client_quotas.API,
    alter_client_quotas.API,
    describe_user_scram_credentials.API,
    alter_user_scram_credentials.API,
    describe_quorum.API,
    describe_cluster.API,
    describe_producers.API,
    describe_transactions.API,
    list_transactions.API,
    consumer_group_heartbeat.API,
    list_config_resources.API,
    describe_topic_partitions.API,
)

API_VERSIONS = api_versions.KEY

APIS: dict[int, Api] = {api.key: api for api in (*_OTHERS, api_versions.api(_OTHERS))}
"""By API key."""


_NOT_SUPPORTED = (
    "ApiVersions leaves these out, and a client that goes by it does not send them. One that sends one all the same",
    "is closed, as by a Kafka that does not know the API, and the log says `connection closed` with the client's",
    "address, the API and the reason below. Requests before it on that connection may stay unanswered. Kafka's own",
    "tools send none of them: they say themselves that the node or the cluster does not support it.",
)


def refusal(api_key: int, version: int) -> str:
    """Why a request of this API and version is not answered."""
    if api_key in APIS:
        versions = APIS[api_key].versions
        only = f"versions {versions[0]} to {versions[-1]} are"
        return f"{APIS[api_key].name} ({api_key}) version {version} is not supported: {only}"
    if api_key in UNSUPPORTED:
        name, reason = UNSUPPORTED[api_key]
        return f"{name} ({api_key}) is not supported: {reason}"
    return f"there is no API {api_key} (version {version})"


def document() -> str:
    """docs/reference/protocol.md."""
    lines = [
        "# Kafka protocol",
        "",
        "<!-- Generated from services/gateway/registry.py and the modules in services/gateway/apis/; do not edit. -->",
        "",
        "The APIs that the gateway advertises and answers, in the versions that are implemented in full. A request for",
        "any other API or version closes its connection, as in Kafka, and the log says why (`connection closed`); any",
        "ApiVersions request is told the ranges. [What is not supported](#not-supported) stands at the end.",
        "",
        "Requests of one connection take effect in their order and are answered in it, as in Kafka. A request that",
        "changes something, Metadata that creates a topic too, waits for the answers to all before it, a parked Fetch",
        "or a JoinGroup that waits for other members included, and those behind it wait for its own. Requests that",
        "only read overlap with each other, and Produce requests with each other; records of one connection reach each",
        "log in their order. Heartbeat counts as reading: it changes no more than until when its member is waited for,",
        "which no reply tells.",
        "",
        "| Key | API | Versions | Flexible from |",
        "|---|---|---|---|",
    ]
    apis = sorted(APIS.values(), key=lambda api: api.key)
    for api in apis:
        flexible = next((str(version) for version in api.versions if is_flexible(api.key, version)), "-")
        lines.append(f"| {api.key} | {api.name} | {api.versions[0]}-{api.versions[-1]} | {flexible} |")
    for api in apis:
        text = importlib.import_module(api.handle.__module__).__doc__ or ""
        lines += ["", f"## {api.name}", "", text.strip()]
    lines += ["", "## Not supported", "", *_NOT_SUPPORTED, "", "| Key | API | Reason |", "|---|---|---|"]
    lines += [f"| {key} | {name} | {reason} |" for key, (name, reason) in UNSUPPORTED.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
