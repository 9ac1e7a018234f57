"""Leader election with a Lease: decides the next step from the stored lease. This module does no IO.

Clocks of different machines are not compared. A lease has expired once it was seen unchanged for its duration.
"""

from dataclasses import dataclass
from enum import Enum, auto

from services.operator.resources import LEASE, Object


class Step(Enum):
    CREATE = auto()
    TAKE = auto()
    RENEW = auto()
    WAIT = auto()


@dataclass(frozen=True, slots=True)
class _Renewal:
    """The fields of a lease that change with each renewal."""

    holder: str
    renewed: str
    transitions: int


class Election:
    """The election of candidate ``me`` for the lease ``name`` of ``seconds``. Times are from one monotonic clock."""

    def __init__(self, me: str, name: str, seconds: int) -> None:
        self._me = me
        self._name = name
        self._seconds = seconds
        self._seen: _Renewal | None = None
        self._seen_at = 0.0

    def step(self, lease: Object | None, now: float) -> Step:
        """Return the next step of this candidate. ``lease`` is the stored Lease, or None if there is none yet."""
        if lease is None:
            return Step.CREATE
        renewal = _renewal(lease)
        if renewal.holder == self._me:
            return Step.RENEW
        if renewal != self._seen:
            self._seen, self._seen_at = renewal, now
        duration = lease["spec"].get("leaseDurationSeconds", self._seconds)
        return Step.TAKE if not renewal.holder or now - self._seen_at >= duration else Step.WAIT

    def held(self, former: Object | None, now: str) -> Object:
        """Return the acquired or renewed lease to store, if ``former`` is still stored.

        ``now`` is RFC 3339 with microseconds.
        """
        spec = former.get("spec", {}) if former is not None else {}
        mine = spec.get("holderIdentity") == self._me
        taken = {
            "holderIdentity": self._me,
            "leaseDurationSeconds": self._seconds,
            "acquireTime": spec["acquireTime"] if mine else now,
            "renewTime": now,
            "leaseTransitions": spec.get("leaseTransitions", -1) + (0 if mine else 1),
        }
        return self._lease(former, taken)

    def released(self, former: Object, now: str) -> Object:
        """Return the lease without a holder, so that the next leader need not wait."""
        spec = former["spec"]
        return self._lease(
            former,
            {"leaseDurationSeconds": 1, "renewTime": now, "leaseTransitions": spec.get("leaseTransitions", 0)},
        )

    def _lease(self, former: Object | None, spec: Object) -> Object:
        metadata = {"name": self._name}
        if former is not None:
            metadata["resourceVersion"] = former["metadata"]["resourceVersion"]
        return {"apiVersion": LEASE.api, "kind": LEASE.name, "metadata": metadata, "spec": spec}


def _renewal(lease: Object) -> _Renewal:
    spec = lease.get("spec", {})
    return _Renewal(spec.get("holderIdentity") or "", spec.get("renewTime", ""), spec.get("leaseTransitions", 0))
