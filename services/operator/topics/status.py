"""The status of a KafscaleTopic: whether clients can use the topic, and whether it matches the resource. No IO."""

from collections.abc import Sequence

from services.operator.conditions import READY, Complaint, Condition, Truth, synced
from services.operator.resources import Object
from services.operator.topics.plan import Seen


def observed(seen: Seen | None, complaint: Complaint | None) -> list[Condition]:
    """Return the conditions of a topic after reconciliation."""
    if seen is None:
        ready = Condition(READY, Truth.FALSE, "Missing", "the topic does not exist")
    else:
        ready = Condition(READY, Truth.TRUE, "Available", "clients can use the topic")
    return [ready, synced(complaint, what="topic")]


def fields(topic: str, seen: Seen | None, managed: Sequence[str] | None) -> Object:
    """Return the fields of the status about the topic. Those for None arguments are not changed."""
    found: Object = {"topicName": topic}
    if managed is not None:
        found["managedConfigs"] = list(managed)
    if seen is not None:
        found |= {"topicId": seen.id, "partitions": seen.partitions}
    return found
