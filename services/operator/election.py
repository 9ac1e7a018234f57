"""Who leads, by a Lease: what is to be done about the one that was read. Pure.

Clocks of machines are not compared: a lease is over when it was seen unchanged for as long as it lasts.
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
class _Sign:
    """Of life; another one is a newer one."""

    holder: str
    renewed: str
    transitions: int


class Election:
    """Of the candidate ``me``, for a lease ``name`` of ``seconds``. Times are those of one monotonic clock."""

    def __init__(self, me: str, name: str, seconds: int) -> None:
        self._me = me
        self._name = name
        self._seconds = seconds
        self._seen: _Sign | None = None
        self._seen_at = 0.0

    def step(self, lease: Object | None, now: float) -> Step:
        """``lease`` as it is stored; None: it was never made."""
        if lease is None:
            return Step.CREATE
        sign = _sign(lease)
        if sign.holder == self._me:
            return Step.RENEW
        if sign != self._seen:
            self._seen, self._seen_at = sign, now
        lasts = lease["spec"].get("leaseDurationSeconds", self._seconds)
        return Step.TAKE if not sign.holder or now - self._seen_at >= lasts else Step.WAIT

    def held(self, former: Object | None, now: str) -> Object:
        """The lease to store, taken or renewed; ``former`` guards it. ``now`` is RFC 3339 with microseconds."""
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
        """The lease without a holder: the next one need not wait."""
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


def _sign(lease: Object) -> _Sign:
    spec = lease.get("spec", {})
    return _Sign(spec.get("holderIdentity") or "", spec.get("renewTime", ""), spec.get("leaseTransitions", 0))
