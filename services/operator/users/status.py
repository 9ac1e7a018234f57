"""The status of a KafscaleUser: whether it can authenticate, and whether it matches the resource. No IO."""

from collections.abc import Sequence

from services.operator.conditions import READY, Complaint, Condition, Truth, synced
from services.operator.resources import Object
from services.operator.users.desired import Desired
from services.operator.users.plan import Seen


def observed(desired: Desired, seen: Seen, complaint: Complaint | None) -> list[Condition]:
    """Return the conditions of a user after reconciliation."""
    missing = [each for each in desired.mechanisms if each not in seen.credentials]
    if desired.source is None:
        ready = Condition(READY, Truth.TRUE, "Available", "the operator sets no password of this user")
    elif missing:
        ready = Condition(READY, Truth.FALSE, "Missing", f"the user has no credential for {' and '.join(missing)}")
    else:
        ready = Condition(READY, Truth.TRUE, "Available", "clients can authenticate as the user")
    return [ready, synced(complaint, what="user")]


def fields(desired: Desired, seen: Seen | None = None, managed: Sequence[str] | None = None) -> Object:
    """Return the fields of the status about the user. Those for None arguments are not changed."""
    # A merge patch with null removes the field.
    found: Object = {"userName": desired.user, "secretName": None if desired.source is None else desired.source.name}
    if managed is not None:
        found["mechanisms"] = list(managed)
    if seen is not None:
        found["acls"] = None if seen.acls is None else len(seen.acls)
    return found
