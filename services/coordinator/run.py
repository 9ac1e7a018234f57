"""One run of the coordinator: the shards that it owns, and everything else that depends on one lease.

To take over a shard, a run claims it (`claims.py`), reads and loads its groups, and serves it. It hands a shard over
when the shard is assigned to another member, or when the run stops. It then refuses new requests, stores pending
writes, unloads the groups, and finally clears the owner in the shard's key. While the lease is not proven, no request
is answered and no session expires. Afterwards all shards are claimed and loaded again, which restarts all session
timeouts.

Every step may be interrupted or have an unknown outcome, so `_reconcile` does not rely on earlier steps. It compares
each shard's key, the shards that this run owns, and the assignment, and starts the missing step. A shard whose key
names this run is served, being moved, claimed again or released.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import structlog
import trio

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.follow import call_at_each
from kafscale.metadata.interface import LeaseNotFound, MetadataStore
from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership, boot_clock, suspension_clock
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.metadata.topics import live_topic_ids
from kafscale.process.version import kafscale_version
from kafscale.v1.coordinator_pb2 import GroupError as E
from kafscale.v1.metadata_pb2 import Member
from services.coordinator.claims import SERVICE, Claim, Owner, ShardOwners, StillOwned, claim, release
from services.coordinator.counters import CoordinatorCounters
from services.coordinator.effects import Now
from services.coordinator.group_clock import GroupClock
from services.coordinator.groups import Groups
from services.coordinator.lag import Connect, Lags
from services.coordinator.pacing import Pacing
from services.coordinator.settings import CoordinatorSettings
from services.coordinator.shard import Shard
from services.coordinator.tickets import NotServed, Tickets
from services.coordinator.timers import Timers, timer_ms

log = structlog.get_logger()

_RETRY = 1.0
"""The pause in seconds before failed steps are retried if no change is seen earlier."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_ANNOUNCE_SECONDS = 2.0
_RELEASE_SECONDS = 2.0
_LEAVE_SECONDS = 1.0
_YIELD_EVERY = 100  # groups


def new_member_suffix() -> str:
    """Return a unique suffix for a member id."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The dependencies of a run that are created outside it."""

    settings: CoordinatorSettings
    namespace: str
    metadata: MetadataStore
    # The members of "coordinator", including this one. The creator runs it.
    members: Members
    # The members of "storage", which the creator runs too, and a function that connects to one of them.
    storages: Members
    connect: Connect
    now_ms: Callable[[], int]
    # The address at which other services reach this instance; empty if they run in the same process.
    address: str = ""
    lease_clock: Callable[[], float] = suspension_clock
    # Unlike the lease clock, it ignores steps of the wall clock.
    boot_clock: Callable[[], float] = boot_clock
    member_suffix: Callable[[], str] = new_member_suffix
    counters: CoordinatorCounters = field(default_factory=CoordinatorCounters)


class Run:
    """A run under one lease. `drain` releases everything. A lost lease raises LeaseNotFound out of the nursery."""

    def __init__(self, deps: Dependencies, run_id: str, nursery: trio.Nursery) -> None:
        settings = deps.settings
        self._deps = deps
        self._nursery = nursery
        self.run_id = run_id
        self.membership = Membership(
            deps.metadata,
            namespace=deps.namespace,
            member=Member(
                format=1,
                run_id=run_id,
                service=SERVICE,
                address=deps.address,
                started_ms=deps.now_ms(),
                version=kafscale_version(),
            ),
            ttl_seconds=settings.lease_ttl_seconds,
            clock=deps.lease_clock,
        )
        self.tickets = Tickets()
        self.shards: dict[int, Shard] = {}
        self.lags = Lags(
            deps.metadata,
            deps.namespace,
            storages=deps.storages,
            connect=deps.connect,
            seconds=settings.group_lag_interval_ms / 1000,
            most=settings.group_lag_series,
        )
        self._limits = settings.limits()
        self._clock = GroupClock(deps.metadata, deps.namespace, clock=deps.boot_clock, wall_ms=deps.now_ms)
        self._timers = Timers(lambda: self.proven)
        self._owners = ShardOwners(deps.metadata, deps.namespace, self._wake)
        self._changed = trio.Event()
        self._loads = trio.CapacityLimiter(settings.group_loads_in_flight)
        self._writing = trio.CapacityLimiter(settings.group_writes_in_flight)
        self._pacing = Pacing(settings.group_write_bytes_per_second, settings.group_write_burst_bytes)
        # Shards with a task that moves them, and since when each assigned shard that is not served yet is awaited.
        self._moving: set[int] = set()
        self._awaited: dict[int, float] = {}
        self._stopping = False
        self._outage = Outage("taking over group shard failed", first=_RETRY, longest=_RETRY)

    @property
    def proven(self) -> bool:
        """Whether no other run can own this run's shards. If False, all loaded groups are dropped."""
        if self.membership.proven:
            return True
        for shard in list(self.shards.values()):
            self._drop(shard, NotServed(E.NOT_COORDINATOR))
        return False

    @property
    def now(self) -> Now:
        return Now(timer_ms(), self._clock.now_ms)

    def awaited(self, seconds: float = 0) -> int:
        """Return the number of assigned shards that have not been served for at least ``seconds``."""
        now = trio.current_time()
        assigned = filter(self._is_assigned, range(paths.GROUP_SHARDS))
        return sum(now - self._awaited.get(i, now) >= seconds for i in assigned if i not in self.shards)

    async def start(self) -> None:
        """Register this member, wait until its registration is visible here, then start all tasks in the nursery."""
        await self._read_clock()
        await self.membership.join()
        self._nursery.start_soon(self.membership.keep)
        view = self._deps.members.view
        while self.run_id not in view.by_run_id:
            view = await self._deps.members.wait_change(view)
        await self._nursery.start(self._owners.run)
        self._nursery.start_soon(self._timers.run)
        self._nursery.start_soon(call_at_each, self._deps.members.changed, self._wake)
        self._nursery.start_soon(self._assign)
        self._nursery.start_soon(self._expire_offsets)
        if self._deps.settings.group_lag_series:
            self._nursery.start_soon(self.lags.run, self._served)

    async def _read_clock(self) -> None:
        outage = Outage("reading the group clock failed", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            try:
                await self._clock.store()
            except STORE_FAILURES as error:
                await outage.pause(error)
            else:
                return

    def serving(self, group_id: str) -> Shard:
        """Return the shard of a group. Raises NotServed if the group cannot be served now."""
        if not self.proven:
            raise NotServed(E.NOT_COORDINATOR)
        index = paths.group_shard(group_id)
        shard = self.shards.get(index)
        if shard is None or shard.releasing:
            raise self._not_served(index)
        shard.check(group_id)
        return shard

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the last computed lag of this run's groups in records, by group and topic."""
        return self.lags.by_group_and_topic(lambda group_id: paths.group_shard(group_id) in self.shards)

    def _served(self) -> list[Groups]:
        return [shard.groups for shard in self.shards.values()]

    async def drain(self) -> None:
        """Release all shards, as far as the deadline allows, and leave."""
        self._stopping = True
        with trio.move_on_after(_ANNOUNCE_SECONDS):
            try:
                await self.membership.tell_leaving()
            except (*STORE_FAILURES, LeaseNotFound) as error:
                # The shards are released anyway. They are assigned to others once this run's lease ends.
                log.warning("leaving without announcing it", error=str(error))
        with trio.move_on_after(self._deps.settings.group_handover_timeout_ms / 1000 + _RELEASE_SECONDS):
            self._wake()
            while self.shards or self._moving:
                await self._changed.wait()
        with trio.move_on_after(_LEAVE_SECONDS):
            await self.membership.leave()

    def end(self) -> None:
        """Stop answering requests. Called when the lease is lost or released."""
        self._stopping = True
        for shard in list(self.shards.values()):
            self._drop(shard, NotServed(E.NOT_COORDINATOR))

    def _is_assigned(self, shard: int) -> bool:
        owner = self._deps.members.view.shard_owner(shard)
        return not self._stopping and owner is not None and owner.run_id == self.run_id

    def _held_by_other(self, shard: int) -> str:
        """Return the other live run that owns the shard, by the last known state; empty if there is none."""
        owner = self._owners[shard]
        return owner if owner != self.run_id and owner in self._deps.members.view.by_run_id else ""

    def _not_served(self, shard: int) -> NotServed:
        view = self._deps.members.view
        # The former run of a restarted process does not answer, even while its lease is still valid.
        other = next((live.run_id for live in view.present if live.run_id == self._held_by_other(shard)), "")
        if self._is_assigned(shard):
            wait = self._deps.settings.group_handover_wait_ms / 1000
            since = self._awaited.get(shard, trio.current_time())
            if not other or trio.current_time() < since + wait:
                return NotServed(E.COORDINATOR_LOAD_IN_PROGRESS)
        owner = view.shard_owner(shard)
        return NotServed(E.NOT_COORDINATOR, other or (owner.run_id if owner and owner.run_id != self.run_id else ""))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _assign(self) -> None:
        while True:
            changed = self._changed
            if self.proven:
                self._reconcile()
            with trio.move_on_after(_RETRY):
                await changed.wait()

    def _reconcile(self) -> None:
        """Start the next step towards the assignment for each shard, with at most one task per shard."""
        for index in range(paths.GROUP_SHARDS):
            shard, assigned = self.shards.get(index), self._is_assigned(index)
            if not assigned or shard is not None:
                self._awaited.pop(index, None)
            else:
                self._awaited.setdefault(index, trio.current_time())
            if assigned:
                if shard is None and not self._held_by_other(index):
                    self._begin(index, self._take_over, index)
            elif shard is not None:
                # Refuse requests from now on, even before the task has started.
                shard.releasing = True
                self._begin(index, self._hand_over, shard)
            elif self._owners[index] == self.run_id:
                # The answer to a claim was lost, or the shard was dropped during its hand-over.
                self._begin(index, self._release, index)

    def _begin(self, index: int, move: Callable[..., Awaitable[None]], *arguments: object) -> None:
        async def moved() -> None:
            try:
                await move(*arguments)
            finally:
                self._moving.discard(index)
                self._wake()

        if index not in self._moving:
            self._moving.add(index)
            self._nursery.start_soon(moved)

    async def _take_over(self, index: int, pause: float = 0) -> None:
        deps = self._deps
        try:
            await trio.sleep(pause)
            async with self._loads:
                began = trio.current_time()
                claimed = await claim(deps.metadata, namespace=deps.namespace, run_id=self.run_id, shard=index)
                self._owners.learn(index, Owner(self.run_id, claimed.revision))
                shard = await self._loaded(claimed)
            self._outage.over()
        except StillOwned as error:
            log.info("group shard not taken over yet", reason=str(error))
            await trio.sleep(_FIRST_PAUSE)
        except STORE_FAILURES as error:
            await self._outage.pause(error, shard=index)
        else:
            if shard.closed:
                await trio.sleep(_FIRST_PAUSE)
            else:
                self.shards[index] = shard
                deps.counters.take_overs += 1
                deps.counters.load_seconds.observe(trio.current_time() - began)

    async def _loaded(self, claimed: Claim) -> Shard:
        """Load all groups of a claimed shard. Former owners can no longer change them."""
        deps = self._deps
        snapshot = await deps.metadata.read_prefix(paths.group_shard_prefix(deps.namespace, claimed.shard))
        shard = Shard(
            claimed,
            Groups(deps.namespace, self._limits, snapshot.revision),
            metadata=deps.metadata,
            namespace=deps.namespace,
            nursery=self._nursery,
            writing=self._writing,
            pacing=self._pacing,
            timers=self._timers,
            tickets=self.tickets,
            now=lambda: self.now,
            counters=deps.counters,
            failed=self._failed,
        )
        try:
            await shard.load(snapshot)
        except BaseException:
            shard.close(NotServed(E.NOT_COORDINATOR))
            raise
        return shard

    async def _hand_over(self, shard: Shard) -> None:
        index = shard.claimed.shard
        self._timers.forget(shard)
        with trio.move_on_after(self._deps.settings.group_handover_timeout_ms / 1000):
            await shard.quiet()
        self._drop(shard, self._not_served(index))
        await self._release(index)

    async def _release(self, index: int) -> None:
        """Release the shard in the metadata store, unless it is assigned to this run again."""
        outage = Outage("releasing group shard failed", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while not self._is_assigned(index):
            deps = self._deps
            try:
                owner = await release(deps.metadata, namespace=deps.namespace, run_id=self.run_id, shard=index)
            except STORE_FAILURES as error:
                await outage.pause(error, shard=index)
            else:
                self._owners.learn(index, owner)
                deps.counters.hand_overs += 1
                return

    def _failed(self, shard: Shard, error: Exception) -> None:
        if not shard.closed:
            log.warning("reloading group shard", shard=shard.claimed.shard, reason=str(error))
            self._deps.counters.fenced += not isinstance(error, STORE_FAILURES)
            if self._is_assigned(shard.claimed.shard) and not shard.releasing:
                # Pause first, so that repeated failures do not flood the store with claims.
                self._begin(shard.claimed.shard, self._take_over, shard.claimed.shard, _FIRST_PAUSE)
            self._drop(shard, NotServed(E.COORDINATOR_LOAD_IN_PROGRESS))

    def _drop(self, shard: Shard, why: NotServed) -> None:
        """Stop using a shard. Its key still names this run, which claims it again or releases it later."""
        shard.close(why)
        if self.shards.get(shard.claimed.shard) is shard:
            del self.shards[shard.claimed.shard]
        self._wake()

    async def _expire_offsets(self) -> None:
        while True:
            await trio.sleep(self._deps.settings.group_offsets_retention_check_interval_ms / 1000)
            try:
                await self._clock.store()
            except STORE_FAILURES as error:
                log.warning("offset expiry skipped", error=str(error))
                continue
            gone = await self._deleted_topics()
            for shard in list(self.shards.values()):
                for number, group_id in enumerate(list(shard.groups)):
                    if number % _YIELD_EVERY == 0:
                        await trio.lowlevel.checkpoint()
                    if shard.releasing or shard.closed or not self.proven:
                        break
                    shard.expire_offsets(group_id, gone)

    async def _deleted_topics(self) -> set[bytes]:
        """Return the ids of deleted topics with committed offsets. A commit's topic exists when the commit arrives."""
        known: set[bytes] = set()
        for shard in list(self.shards.values()):
            known |= shard.groups.topic_ids()
            await trio.lowlevel.checkpoint()
        if not known:
            return known
        try:
            live = await live_topic_ids(self._deps.metadata, self._deps.namespace)
        except (CorruptData, *STORE_FAILURES) as error:
            log.warning("removal of offsets of deleted topics skipped", error=str(error))
            return set()
        return known - live
