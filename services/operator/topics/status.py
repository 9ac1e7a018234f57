"""The status of a KafscaleTopic: whether clients can use the topic, and whether it is as it is wanted. Pure."""

from collections.abc import Sequence

from services.operator.conditions import Condition, Truth, merged
from services.operator.resources import Object
from services.operator.topics.plan import Complaint, Seen

READY = "Ready"
SYNCED = "Synced"


def told(seen: Seen | None, complaint: Complaint | None) -> list[Condition]:
    """Of a topic as it is after all that could be done."""
    if seen is None:
        ready = Condition(READY, Truth.FALSE, "Missing", "there is no such topic")
    else:
        ready = Condition(READY, Truth.TRUE, "Available", "clients can use the topic")
    if complaint is not None:
        return [ready, Condition(SYNCED, Truth.FALSE, complaint.reason, complaint.message)]
    return [ready, Condition(SYNCED, Truth.TRUE, "AsWanted", "the topic has the wanted partitions and configs")]


def absent(reason: str, message: str) -> list[Condition]:
    """Of a topic that the resource does not stand for, or that cannot be looked for."""
    return [Condition(type_, Truth.FALSE, reason, message) for type_ in (READY, SYNCED)]


def unknown(reason: str, message: str) -> list[Condition]:
    """Nothing can be told, and nothing was changed for certain."""
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
    """What of the status is to be stored. None: nothing new is known, and what is stored stays."""
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
