"""Keeps etcd from filling up: compacts its history by age and by size, and recovers it from the NOSPACE alarm.

Any number of processes do this without coordination. Each compacts only revisions that it has itself seen grow old. A
compaction walks all live keys, so a process skips one by age if another process has compacted since its previous
sample. Recovery steps may be done twice. Defragmentation is costly, so processes that see the alarm wait for a random
time and check again first.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
import trio

from kafscale.errors import Refused, Unavailable
from kafscale.metadata.etcd_maintenance import EtcdStatus
from kafscale.metadata.etcd_space import EtcdSpace
from kafscale.metadata.interface import MetadataStore

SIZE_SHARE = 0.5
"""The share of the quota in use from which history is compacted by size. The rest is for writes during compaction."""

_LOOK_SECONDS = 5.0
_SHORTEST_LOOK_SECONDS = 1.0
_SAMPLES_PER_SPAN = 10
_GROWTH_SHARE = 0.05  # of the quota, since the last compaction by size
_TURN_SECONDS = 10.0
# A member that is being defragmented does not answer. Recovery waits this long for a missing member.
_MISSING_MEMBER_SECONDS = 60.0
_SETTLED_SECONDS = 5.0
_DISARM_SHARE = 0.8  # of the quota, taken by the largest file: above it the alarm would soon be raised again

_log = structlog.get_logger(__name__)


class Maintenance(Protocol):
    """See `kafscale.metadata.etcd_maintenance.EtcdMaintenance`."""

    @property
    def members(self) -> int: ...

    async def statuses(self) -> Sequence[EtcdStatus]: ...

    async def is_compacted(self, revision: int) -> bool: ...

    async def defragment(self, address: str) -> None: ...

    async def disarm(self) -> None: ...


class Upkeep:
    """Compacts history that is older than ``history_seconds``. ``random`` (0 to 1) spreads processes in time.

    With ``recovers``, it also compacts and defragments etcd after a NOSPACE alarm, and then disarms the alarm.
    """

    def __init__(
        self,
        store: MetadataStore,
        maintenance: Maintenance,
        space: EtcdSpace,
        *,
        history_seconds: float,
        recovers: bool = True,
        random: Callable[[], float],
    ) -> None:
        self._store = store
        self._maintenance = maintenance
        self._space = space
        self._history_seconds = history_seconds
        self._recovers = recovers
        self._random = random
        # Samples (time on this process's clock, newest revision), oldest first.
        self._seen: deque[tuple[float, int]] = deque()
        self._before = 0  # the newest revision at the last check
        self._least_used = 0.0  # since the last compaction by size; 0 below SIZE_SHARE
        # The time of the last check, and the share of the quota in use then.
        self._looked: tuple[float, float] | None = None
        # During an alarm: when this process may act next, and what it has done.
        self._turn: float | None = None
        self._full_since = 0.0
        self._emptied = 0
        self._shrunk: set[str] = set()
        self._used: tuple[float, float] | None = None
        self._reported = ""

    async def run(self) -> None:
        """Run until cancelled. A check that fails or that etcd refuses is repeated at the next interval."""
        while True:
            try:
                await self._look()
            except (Unavailable, Refused) as error:
                self._report(error)
            await trio.sleep(min(self._pause(), self._sample_seconds) * (0.75 + self._random() / 2))

    def _pause(self) -> float:
        """Return the seconds until the next check. At the current growth, it comes before the database is half full."""
        before, self._looked = self._looked, (trio.current_time(), self._space.most_used)
        remaining = SIZE_SHARE - self._space.most_used
        if before is None or remaining <= 0 or self._space.full:
            return _SHORTEST_LOOK_SECONDS
        (began, was), (now, used) = before, self._looked
        growth = (used - was) / (now - began)  # share of the quota per second
        if growth <= 0:
            return _LOOK_SECONDS
        return min(max(remaining / growth / 2, _SHORTEST_LOOK_SECONDS), _LOOK_SECONDS)

    @property
    def _sample_seconds(self) -> float:
        return self._history_seconds / _SAMPLES_PER_SPAN

    def _report(self, error: Exception) -> None:
        if self._reported != str(error):
            self._reported = str(error)
            _log.warning("the metadata store's history could not be compacted", error=self._reported)

    async def _look(self) -> None:
        self._space.members = await self._maintenance.statuses()
        newest, now = self._space.revision, trio.current_time()
        before, self._before = self._before, newest
        # A restored etcd assigns the revisions above it again.
        while self._seen and self._seen[-1][1] > newest:
            self._seen.pop()
        if not self._seen or now - self._seen[-1][0] >= self._sample_seconds:
            self._seen.append((now, newest))
        if self._space.full:
            await self._recover(now, newest)
            return
        self._turn = None
        if self._is_growing() and before:
            # Keeping the changes since the last check is enough for connected watches and for most that reconnect.
            await self._compact(min(before, newest), "size")
            self._least_used = self._space.most_used
        else:
            await self._compact_older(now - self._history_seconds)

    def _is_growing(self) -> bool:
        """Return whether history, rather than the live keys, may be filling the database."""
        used = self._space.most_used
        if used < SIZE_SHARE:
            self._least_used = 0.0
            return False
        if used >= self._least_used + _GROWTH_SHARE:
            return True
        self._least_used = min(self._least_used, used)
        return False

    async def _compact_older(self, limit: float) -> None:
        """Compact at the newest sample older than ``limit``, at most once per sample among all processes."""
        while len(self._seen) > 2 and self._seen[2][0] <= limit:
            self._seen.popleft()
        if len(self._seen) > 1 and self._seen[1][0] <= limit:
            (_, before), (_, due) = self._seen[0], self._seen[1]
            if not await self._maintenance.is_compacted(before):
                await self._compact(due, "time")
            self._seen.popleft()

    async def _compact(self, revision: int, reason: str) -> None:
        try:
            await self._store.compact(revision)
        except Refused as error:
            self._space.refused = str(error)
            raise
        self._space.compacted(reason)
        self._reported = ""

    async def _recover(self, now: float, newest: int) -> None:
        """Do one recovery step: compact all history, then defragment the members one by one, then disarm the alarm."""
        if self._turn is None:
            self._turn, self._full_since = now + self._random() * _TURN_SECONDS, now
            self._emptied, self._used = 0, None
            _log.error("etcd is full and accepts no writes", recovers=self._recovers, see="docs/guides/etcd.md")
        if not self._recovers or now < self._turn:
            return
        if len(self._space.members) < self._maintenance.members and now < self._full_since + _MISSING_MEMBER_SECONDS:
            return
        # If this step fails, another process takes the next one.
        self._turn = now + self._random() * _TURN_SECONDS
        if newest > self._emptied:
            await self._compact(newest, "alarm")
            self._emptied, self._shrunk = newest, set()
        elif self._is_settled(now):
            await self._shrink_or_disarm()
        self._turn = now

    def _is_settled(self, now: float) -> bool:
        """Return whether etcd has deleted what it compacted. Space freed last counts as in use until the next write."""
        used = self._space.most_used
        if self._used is None or self._used[1] != used:
            self._used = now, used
        return used <= SIZE_SHARE or now - self._used[0] >= _SETTLED_SECONDS

    async def _shrink_or_disarm(self) -> None:
        space = self._space
        for member in space.members:
            if space.file_share(member) > SIZE_SHARE and member.address not in self._shrunk:
                # A member that does not answer delays a check, so this member's status may be outdated.
                if not await self._is_still_large(member.address):
                    return
                _log.warning("defragmenting a member of etcd", member=member.address)
                await self._maintenance.defragment(member.address)
                space.defragmentations += 1
                self._shrunk.add(member.address)
                return
        largest = max(map(space.file_share, space.members))
        if largest > _DISARM_SHARE:
            raise Unavailable(f"live keys alone use {largest:.0%} of etcd's quota: raise the quota")
        await self._maintenance.disarm()
        space.disarmed += 1
        _log.warning("etcd's NOSPACE alarm disarmed")

    async def _is_still_large(self, address: str) -> bool:
        """Return whether the member needs defragmentation and no member has stopped answering since the last check."""
        space, answered = self._space, len(self._space.members)
        space.members = await self._maintenance.statuses()
        large = {member.address for member in space.members if space.file_share(member) > SIZE_SHARE}
        return address in large and len(space.members) >= answered
