"""What a leader assigned to a consumer, as consumers write it for each other."""

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.serial import entity_reader

_VERSION_BYTES = 2
_read = entity_reader(ConsumerProtocolAssignment)


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """Partitions by topic, in order. Empty where it is nothing of a consumer's, which a group may hold as well."""
    if len(assignment) <= _VERSION_BYTES:
        return {}
    try:
        read, _ = _read(assignment, _VERSION_BYTES)
    except Exception:  # noqa: BLE001 - what members tell each other may be anything
        return {}
    assigned: dict[str, list[int]] = {}
    for topic in sorted(read.assigned_partitions, key=lambda each: each.topic):
        assigned.setdefault(topic.topic, []).extend(topic.partitions)
    return {topic: sorted(partitions) for topic, partitions in assigned.items()}
