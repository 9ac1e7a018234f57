"""How full etcd is, as seen by one process: for its health, its metrics and its maintenance of etcd."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from kafscale.metadata.etcd_maintenance import NOSPACE, EtcdStatus
from kafscale.telemetry import HEALTHY, Family, Finding, State, by_label, counter, gauge

_ALARMS = (NOSPACE, "CORRUPT")
_REASONS = ("time", "size", "alarm")
_WORRYING_SHARE = 0.6
"""The share of a quota in use from which health is degraded. Compaction by size begins below it, so it has not helped.
An alert uses the same limit."""


class EtcdSpace:
    """Space used by etcd. ``quota_bytes`` is the assumed quota of members that do not report one."""

    def __init__(self, quota_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._quota_bytes = quota_bytes
        self._clock = clock
        self._compacted_at = clock()
        self.members: Sequence[EtcdStatus] = ()
        self.compactions: Counter[str] = Counter()  # by reason
        self.defragmentations = 0
        self.disarmed = 0
        self.refused = ""
        """etcd's reason for refusing this process's last compaction; empty if it was not refused."""

    def quota(self, member: EtcdStatus) -> int:
        return member.quota_bytes if member.quota_bytes > 0 else self._quota_bytes

    def share(self, member: EtcdStatus) -> float:
        """Return the share of the quota that is in use."""
        return member.database_bytes_in_use / self.quota(member)

    def file_share(self, member: EtcdStatus) -> float:
        """Return the share of the quota that the file takes. At 1, etcd raises the alarm, even if little is in use."""
        return member.database_bytes / self.quota(member)

    @property
    def most_used(self) -> float:
        """The largest share in use of any member."""
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
        usage = ", ".join(f"{m.address} uses {self.share(m):.0%} of {self.quota(m)} bytes" for m in full)
        return Finding(State.DEGRADED, usage + why)

    def families(self) -> list[Family]:
        return [
            Family(
                "kafscale_etcd_database_bytes",
                "gauge",
                "The size of an etcd member's database file, which the quota limits. The file does not shrink.",
                lambda: {(member.address,): member.database_bytes for member in self.members},
                ("member",),
            ),
            Family(
                "kafscale_etcd_database_in_use_bytes",
                "gauge",
                "The part of the database file that is in use by keys and the history of their values.",
                lambda: {(member.address,): member.database_bytes_in_use for member in self.members},
                ("member",),
            ),
            Family(
                "kafscale_etcd_quota_bytes",
                "gauge",
                "The quota of an etcd member, or KAFSCALE_ETCD_QUOTA_BYTES if the member does not report it.",
                lambda: {(member.address,): self.quota(member) for member in self.members},
                ("member",),
            ),
            Family(
                "kafscale_etcd_alarms",
                "gauge",
                "The number of etcd members that have raised this alarm. After NOSPACE, etcd accepts no writes.",
                self._alarms,
                ("alarm",),
            ),
            Family(
                "kafscale_etcd_compactions_total",
                "counter",
                "The number of compactions of etcd's history by this process: because of its age, its size, or the "
                "NOSPACE alarm.",
                lambda: by_label(self.compactions, _REASONS),
                ("reason",),
            ),
            gauge(
                "kafscale_etcd_compaction_refused",
                "1 if etcd does not allow this process to compact, which requires etcd's root role.",
                lambda: bool(self.refused),
            ),
            gauge(
                "kafscale_etcd_last_compaction_seconds",
                "The time since this process last compacted etcd's history, or since it started if it has not done so "
                "yet.",
                lambda: self._clock() - self._compacted_at,
            ),
            counter(
                "kafscale_etcd_defragmentations_total",
                "The number of etcd members that this process defragmented because of the NOSPACE alarm.",
                lambda: self.defragmentations,
            ),
            counter(
                "kafscale_etcd_disarmed_total",
                "The number of times that this process disarmed the NOSPACE alarm.",
                lambda: self.disarmed,
            ),
        ]

    def _alarms(self) -> dict[tuple[str, ...], float]:
        # Each member reports the alarms of all members.
        raised = [Counter(member.alarms) for member in self.members]
        return {(alarm,): max((counts[alarm] for counts in raised), default=0) for alarm in _ALARMS}
