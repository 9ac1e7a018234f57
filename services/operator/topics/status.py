"""The status of a KafscaleTopic: whether clients can use the topic, and whether it matches the resource. No IO."""

from collections.abc import Sequence

from services.operator.conditions import Condition, Truth, merged
from services.operator.resources import Object
from services.operator.topics.plan import Complaint, Seen

READY = "Ready"
SYNCED = "Synced"


def observed(seen: Seen | None, complaint: Complaint | None) -> list[Condition]:
    """Return the conditions of a topic after reconciliation."""
    if seen is None:
        ready = Condition(READY, Truth.FALSE, "Missing", "the topic does not exist")
    else:
        ready = Condition(READY, Truth.TRUE, "Available", "clients can use the topic")
    if complaint is not None:
        return [ready, Condition(SYNCED, Truth.FALSE, complaint.reason, complaint.message)]
    return [ready, Condition(SYNCED, Truth.TRUE, "AsWanted", "the topic matches the resource")]


def absent(reason: str, message: str) -> list[Condition]:
    """Return the conditions of a resource that is not in effect, or whose cluster cannot be determined."""
    return [Condition(type_, Truth.FALSE, reason, message) for type_ in (READY, SYNCED)]


def unknown(reason: str, message: str) -> list[Condition]:
    """Return the conditions of a topic whose state is unknown, and which may or may not have been changed."""
    return [Condition(type_, Truth.UNKNOWN, reason, message) for type_ in (READY, SYNCED)]


def status_of(
    resource: Object,
    conditions: Sequence[Condition],
    *,
    cluster: str,
    topic: str,
    seen: Seen | None,
    managed: Sequence[str] | None,
    now: str,
) -> Object:
    """Return the fields of the status to store. Fields for None arguments are not changed."""
    generation = int(resource["metadata"]["generation"])
    former = resource.get("status", {}).get("conditions", [])
    status: Object = {
        "observedGeneration": generation,
        "topicName": topic,
        "conditions": merged(former, conditions, generation=generation, now=now),
    }
    if cluster:
        status["cluster"] = cluster
    if managed is not None:
        status["managedConfigs"] = list(managed)
    if seen is not None:
        status |= {"topicId": seen.id, "partitions": seen.partitions}
    return status
