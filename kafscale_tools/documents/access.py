"""Generates docs/reference/access.md: what requests and calls ask for if ACLs are enforced."""

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor import ServiceDescriptor

from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topics import TopicCatalog
from kafscale.rpc import generated
from kafscale.rpc.access import OF_SERVICES, Need, Needs
from kafscale.rpc.admin import SERVICE as ADMIN
from kafscale.security.acls import ResourceType
from kafscale.security.asks import Ask
from services.gateway.admin.needs import NEEDS
from services.gateway.clients.registry import APIS
from services.storage.needs import needs

_HEAD = """\
# Access

<!-- Generated from services/gateway/apis and the tables of needs by `make generate`; do not edit. -->

With [ACLs](../guides/security.md#acls), a client needs these operations. The cluster is the resource `kafka-cluster`.

## Kafka requests

If a client lacks what every request of an API needs, the whole request is denied. Otherwise each topic or group in it
is allowed or denied for itself, and lists contain what the client may describe. The text about [each API](protocol.md)
says if one of several operations is enough. SaslHandshake, SaslAuthenticate and ApiVersions ask for nothing.

| API | For every request | For parts of it |
|---|---|---|
"""

_CALLS = """\

## Calls over gRPC

A call is allowed as a whole, on all the resources that it names, or denied with `PERMISSION_DENIED`. *Or* separates
alternatives, of which one is enough. Of operations with *and* between them, all are needed. The transactional id is the
name of the sink. Methods that are not listed are for calls between services and need CLUSTER_ACTION on the cluster.
gRPC's health service asks for nothing.

| Method | Needs |
|---|---|
"""


def document() -> str:
    """Return the complete document."""
    asked = [
        f"| {api.name} | {_joined([] if api.needs is None else [api.needs])} | {_joined(api.asks)} |\n"
        for api in APIS.values()
        if api.needs or api.asks
    ]
    storage = needs(TopicCatalog(MemoryMetadataStore(), ""))
    calls = [*_rows(ADMIN, NEEDS), *_rows(generated.SEGMENT_STORAGE, storage)]
    return "".join([_HEAD, *asked, _CALLS, *calls])


def _rows(service: ServiceDescriptor, table: Needs) -> Iterator[str]:
    for method in service.methods_by_name:
        if table.get(method, OF_SERVICES) != OF_SERVICES:
            yield f"| {service.name}.{method} | {' or '.join(map(_shown_need, table[method]))} |\n"


def _shown_need(need: Need) -> str:
    return " and ".join([_shown(need.ask), *map(_shown_need, need.also)])


def _joined(asks: Iterable[Ask]) -> str:
    return ", ".join(map(_shown, asks)) or "-"


def _shown(ask: Ask) -> str:
    where = "the cluster" if ask.type is ResourceType.CLUSTER else ask.type.name.lower().replace("_", " ")
    return f"{ask.operation.name} on {where}"
