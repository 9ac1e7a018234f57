"""The status of a KafscaleCluster, as its gateways report it. This module does no IO."""

from collections.abc import Sequence

from kafscale.v1 import admin_pb2 as pb
from services.operator.conditions import READY, Condition, Truth, merged
from services.operator.resources import Object

_SERVICES = {"gateway": "gateways", "storage": "storage", "indexer": "indexers", "coordinator": "coordinators"}


def observed(reply: pb.ClusterStatusReply) -> Object:
    """Return the fields of the status that a gateway reports, with members as ``ready/all``."""
    found: Object = {
        "clusterId": reply.cluster_id,
        "topics": reply.topics,
        "partitions": reply.partitions,
        "members": {},
    }
    for service, name in _SERVICES.items():
        members = [member for member in reply.members if member.service == service]
        ready = sum(member.health == pb.ClusterMember.READY for member in members)
        found["members"][name] = f"{ready}/{len(members)}"
    return found


def reachable(reply: pb.ClusterStatusReply) -> list[Condition]:
    """Return the conditions of a cluster with a gateway that answers."""
    missing = [
        service
        for service in _SERVICES
        if not any(each.service == service and each.health == pb.ClusterMember.READY for each in reply.members)
    ]
    if missing:
        return [Condition(READY, Truth.FALSE, "MembersMissing", f"no ready member of {', '.join(missing)}")]
    return [Condition(READY, Truth.TRUE, "Serving", "each service has a ready member")]


def unreachable(reason: str, message: str) -> list[Condition]:
    return [Condition(READY, Truth.FALSE, reason, message)]


def starting(message: str) -> list[Condition]:
    """Return the conditions of a cluster whose pods are still starting."""
    return [Condition(READY, Truth.FALSE, "Starting", message)]


def status_of(resource: Object, conditions: Sequence[Condition], known: Object, now: str) -> Object:
    """Return the whole status. Fields that are not in ``known`` keep their values."""
    former = resource.get("status", {})
    generation = int(resource["metadata"]["generation"])
    return {
        **former,
        **known,
        "observedGeneration": generation,
        "conditions": merged(former.get("conditions", []), conditions, generation=generation, now=now),
    }
