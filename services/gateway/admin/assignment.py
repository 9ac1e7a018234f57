"""Decodes the assignments that a group leader writes for consumers."""

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.serial import entity_reader

_VERSION_BYTES = 2
_read = entity_reader(ConsumerProtocolAssignment)


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """Return the sorted partitions by topic. Empty if ``assignment`` was not written by a consumer."""
    if len(assignment) <= _VERSION_BYTES:
        return {}
    try:
        read, _ = _read(assignment, _VERSION_BYTES)
    except Exception:  # noqa: BLE001 - members may send each other arbitrary bytes
        return {}
    assigned: dict[str, list[int]] = {}
    for topic in sorted(read.assigned_partitions, key=lambda each: each.topic):
        assigned.setdefault(topic.topic, []).extend(topic.partitions)
    return {topic: sorted(partitions) for topic, partitions in assigned.items()}
