"""How full etcd is, as one process knows it: for its health and its metrics, and for what it does about it."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from kafscale.metadata.etcd_maintenance import NOSPACE, EtcdStatus
from kafscale.vitals import HEALTHY, Family, Finding, State, by_label, counter, gauge

_ALARMS = (NOSPACE, "CORRUPT")
_REASONS = ("time", "size", "alarm")
_WORRYING_SHARE = 0.6
"""Of a quota, in use: compaction by size, which begins below it, does not help. An alert says the same."""


class EtcdSpace:
    """``quota_bytes``: of members that do not tell theirs, or have none."""

    def __init__(self, quota_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._quota_bytes = quota_bytes
        self._clock = clock
        self._compacted_at = clock()
        self.members: Sequence[EtcdStatus] = ()
        self.compactions: Counter[str] = Counter()  # by reason
        self.defragmentations = 0
        self.disarmed = 0
        self.refused = ""
        """Why etcd does not let this process compact; empty: it does, as far as is known."""

    def quota(self, member: EtcdStatus) -> int:
        return member.quota_bytes if member.quota_bytes > 0 else self._quota_bytes

    def share(self, member: EtcdStatus) -> float:
        """How much of the quota is in use."""
        return member.database_bytes_in_use / self.quota(member)

    def file_share(self, member: EtcdStatus) -> float:
        """How much of the quota the file has; at 1 it raises the alarm, whatever of it is in use."""
        return member.database_bytes / self.quota(member)

    @property
    def most_used(self) -> float:
        """The share of the member that has most in use."""
        return max(map(self.share, self.members), default=0.0)

    @property
    def revision(self) -> int:
        return max((member.revision for member in self.members), default=0)

    @property
    def full(self) -> bool:
        return any(NOSPACE in member.alarms for member in self.members)

    def compacted(self, reason: str) -> None:
        self.compactions[reason] += 1
        self._compacted_at = self._clock()
        self.refused = ""

    def finding(self) -> Finding:
        why = f"; this process may not compact: {self.refused}" if self.refused else ""
        alarms = sorted({alarm for member in self.members for alarm in member.alarms})
        if alarms:
            return Finding(State.UNAVAILABLE, f"etcd has raised {', '.join(alarms)}, see docs/guides/etcd.md{why}")
        full = [member for member in self.members if self.share(member) >= _WORRYING_SHARE]
        if not full:
            return HEALTHY
        said = ", ".join(f"{m.address} uses {self.share(m):.0%} of {self.quota(m)} bytes" for m in full)
        return Finding(State.DEGRADED, said + why)

    def families(self) -> list[Family]:
        return [
            Family(
                "kafscale_etcd_database_bytes",
                "gauge",
                "The database file of a member of etcd, which does not shrink; the quota is about this.",
                lambda: {(member.address,): member.database_bytes for member in self.members},
                ("member",),
            ),
            Family(
                "kafscale_etcd_database_in_use_bytes",
                "gauge",
                "What of that file is in use: keys and the history of their values.",
                lambda: {(member.address,): member.database_bytes_in_use for member in self.members},
                ("member",),
            ),
            Family(
                "kafscale_etcd_quota_bytes",
                "gauge",
                "The quota of a member of etcd, or KAFSCALE_ETCD_QUOTA_BYTES where it does not tell.",
                lambda: {(member.address,): self.quota(member) for member in self.members},
                ("member",),
            ),
            Family(
                "kafscale_etcd_alarms",
                "gauge",
                "Members of etcd that have raised this alarm. With NOSPACE etcd takes no writes.",
                self._alarms,
                ("alarm",),
            ),
            Family(
                "kafscale_etcd_compactions_total",
                "counter",
                "Compactions of etcd's history by this process: for its age, for its size, or for the alarm NOSPACE.",
                lambda: by_label(self.compactions, _REASONS),
                ("reason",),
            ),
            gauge(
                "kafscale_etcd_compaction_refused",
                "1 when etcd does not let this process compact, which takes its root role.",
                lambda: bool(self.refused),
            ),
            gauge(
                "kafscale_etcd_last_compaction_seconds",
                "How long ago this process compacted etcd's history last, or began, where it has not done so yet.",
                lambda: self._clock() - self._compacted_at,
            ),
            counter(
                "kafscale_etcd_defragmentations_total",
                "Members of etcd that this process defragmented because of the alarm NOSPACE.",
                lambda: self.defragmentations,
            ),
            counter(
                "kafscale_etcd_disarmed_total",
                "Times that this process disarmed the alarm NOSPACE.",
                lambda: self.disarmed,
            ),
        ]

    def _alarms(self) -> dict[tuple[str, ...], float]:
        # Each member reports the alarms of all members.
        raised = [Counter(member.alarms) for member in self.members]
        return {(alarm,): max((counts[alarm] for counts in raised), default=0) for alarm in _ALARMS}
