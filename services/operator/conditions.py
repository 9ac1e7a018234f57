"""Conditions in the status of Kubernetes resources. This module does no IO."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from services.operator.resources import Object

READY = "Ready"
SYNCED = "Synced"
_MOST_MESSAGE = 1024


class Truth(Enum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition. ``reason`` is a CamelCase word for programs, ``message`` a sentence for users."""

    type: str
    truth: Truth
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a topic or a user cannot reach its desired state."""

    reason: str
    message: str


def synced(complaint: Complaint | None, *, what: str) -> Condition:
    """Return the condition of a topic or a user after reconciliation."""
    if complaint is not None:
        return Condition(SYNCED, Truth.FALSE, complaint.reason, complaint.message)
    return Condition(SYNCED, Truth.TRUE, "AsWanted", f"the {what} matches the resource")


def absent(reason: str, message: str) -> list[Condition]:
    """Return the conditions of a resource that is not in effect, or whose cluster cannot be determined."""
    return [Condition(type_, Truth.FALSE, reason, message) for type_ in (READY, SYNCED)]


def unknown(reason: str, message: str) -> list[Condition]:
    """Return the conditions of a resource whose state is unknown, and which may or may not have been changed."""
    return [Condition(type_, Truth.UNKNOWN, reason, message) for type_ in (READY, SYNCED)]


def merged(former: Iterable[Object], present: Sequence[Condition], *, generation: int, now: str) -> list[Object]:
    """Return ``present`` in the form of a status. ``now`` (RFC 3339) is the transition time of changed conditions."""
    by_type = {condition["type"]: condition for condition in former}
    found = []
    for condition in present:
        known = by_type.get(condition.type)
        same = known is not None and known["status"] == condition.truth.value
        found.append(
            {
                "type": condition.type,
                "status": condition.truth.value,
                "reason": condition.reason,
                "message": condition.message[:_MOST_MESSAGE],
                "observedGeneration": generation,
                "lastTransitionTime": known["lastTransitionTime"] if known is not None and same else now,
            }
        )
    return found


def reason_of(status: Object, type_: str) -> str:
    """Return the reason of a condition in a status, empty if the status does not have it."""
    for condition in status.get("conditions", []):
        if condition["type"] == type_:
            return str(condition["reason"])
    return ""
