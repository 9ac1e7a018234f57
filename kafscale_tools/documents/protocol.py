"""Generates docs/reference/protocol.md from the registry of Kafka APIs and the docstrings of their modules."""

import importlib

from kafscale.kafka.codec import is_flexible
from services.gateway.clients.registry import APIS
from services.gateway.clients.unsupported import UNSUPPORTED

_HEAD = """\
# Kafka protocol

<!-- Generated from services/gateway/clients/registry.py and services/gateway/apis by `make generate`; do not edit. -->

The gateway advertises the APIs and versions below in its ApiVersions response and implements each of them in full. As
in Kafka, a request for any other API or version closes the connection; the log event `connection closed` gives the
reason. ApiVersions is answered in every version. See [Not supported](#not-supported) for the APIs that are missing.

As in Kafka, requests on one connection take effect in order and are answered in order. A request that changes
something, including a Metadata request that creates a topic, waits until all earlier requests on its connection are
answered. This includes a Fetch that waits for records and a JoinGroup that waits for other members. Later requests wait
for its answer. Requests that only read can run at the same time as each other, and so can Produce requests; the records
of one connection are appended to each log in order. Heartbeat counts as a read.

| Key | API | Versions | Flexible from |
|---|---|---|---|
"""

_NOT_SUPPORTED = """\

## Not supported

These APIs are not in the ApiVersions response, so a client that follows it does not send them. If a client sends one
anyway, the gateway closes the connection, as a Kafka broker does that does not know the API, and logs
`connection closed` with the client's address, the API and the reason below. Earlier requests on that connection may
stay unanswered. Kafka's own tools do not send these requests: they report that the broker or the cluster does not
support them.

| Key | API | Reason |
|---|---|---|
"""


def document() -> str:
    """Return the complete document."""
    rows = [
        f"| {api.key} | {api.name} | {api.versions[0]}-{api.versions[-1]} | {_flexible_from(api.key, api.versions)} |\n"
        for api in APIS.values()
    ]
    texts = [
        f"\n## {api.name}\n\n{(importlib.import_module(api.handle.__module__).__doc__ or '').strip()}\n"
        for api in APIS.values()
    ]
    missing = [f"| {key} | {name} | {reason} |\n" for key, (name, reason) in UNSUPPORTED.items()]
    return "".join([_HEAD, *rows, *texts, _NOT_SUPPORTED, *missing])


def _flexible_from(key: int, versions: range) -> str:
    return next((str(version) for version in versions if is_flexible(key, version)), "-")
