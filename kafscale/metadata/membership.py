"""This run's lease, by which others see that it is alive, and the time until which the run may act as an owner."""

import math
import secrets
import string
import time
from collections.abc import Awaitable, Callable

import structlog
import trio

from kafscale import paths
from kafscale.errors import Refused
from kafscale.metadata.interface import LeaseNotFound, MetadataStore, Put
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.v1.metadata_pb2 import Member

log = structlog.get_logger()

_RUN_ID_CHARACTERS = string.ascii_letters + string.digits
_RUN_ID_LENGTH = 12
_STEP_SECONDS = 0.1  # a larger jump of the wall clock is a step, not slewing
_MARGIN = 0.2  # the share of the time to live by which the proof is shorter
_LEAVE_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


def boot_clock() -> float:
    """Return the seconds since the machine started, suspension included. Steps of the wall clock do not change it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseClock:
    """A clock in seconds that advances while the machine is suspended, unlike Trio's, and never goes back.

    ``boot`` does not advance while a hypervisor pauses the machine. If ``wall`` is set forward afterwards, that time is
    added, so a lease that may have expired counts as lost.
    """

    def __init__(
        self,
        boot: Callable[[], float] = boot_clock,
        wall: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_REALTIME),
    ) -> None:
        self._boot = boot
        self._wall = wall
        self._ahead = wall() - boot()
        self._stopped = 0.0

    def __call__(self) -> float:
        boot = self._boot()
        ahead = self._wall() - boot
        step = ahead - self._ahead
        if abs(step) > _STEP_SECONDS:
            self._ahead = ahead
            self._stopped += max(step, 0.0)
        return boot + self._stopped


suspension_clock = LeaseClock()


def new_run_id() -> str:
    """Return a random run id, so that a restarted process is never mistaken for its former run.

    71 bits suffice for that. The id is short because each commit of a partition stores it.
    """
    return "".join(secrets.choice(_RUN_ID_CHARACTERS) for _ in range(_RUN_ID_LENGTH))


class Membership:
    """Registers ``member``, which names its run and service, under a lease, and keeps the lease alive.

    ``proven`` is true until the time when the last keepalive was *sent* plus the time to live, less a margin. Until
    then no other run can have taken over.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        *,
        namespace: str,
        member: Member,
        ttl_seconds: int,
        clock: Callable[[], float] = suspension_clock,
    ) -> None:
        self._metadata = metadata
        self.key = paths.member_key(namespace, member.service, member.run_id)
        self._ttl = ttl_seconds
        self._clock = clock
        self._member = member
        self._deadline = -math.inf
        self._has_left = False
        self.run_id = member.run_id
        self.lease = 0

    @property
    def proven(self) -> bool:
        return self._clock() < self._deadline

    @property
    def unproven_seconds(self) -> float:
        """For how long the lease is not proven, suspensions included; 0 if it is."""
        return max(0.0, self._clock() - self._deadline)

    async def join(self) -> None:
        """Get a lease and write the member key under it; retry until that succeeds.

        A write without an answer is repeated under the same lease. Otherwise a late write could attach the key to a
        lease that nobody renews.
        """
        outage = Outage("not registered", first=_FIRST_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)
        while True:
            sent = self._clock()
            try:
                if self.lease:
                    await self._metadata.keep_alive(self.lease)
                else:
                    self.lease = await self._metadata.grant_lease(self._ttl)
                await self._write()
            except LeaseNotFound as error:
                self.lease = 0
                await outage.pause(error)
            except STORE_FAILURES as error:
                await outage.pause(error)
            else:
                self._extend(sent)
                return

    async def keep(self) -> None:
        """Renew the lease until `leave` is called or the lease is lost. Raises LeaseNotFound if it is lost."""
        outage = Outage("lease not renewed", first=0, longest=0)
        while True:
            await trio.sleep(self._ttl / 4)
            if self._has_left:
                return
            sent = self._clock()
            try:
                await self._metadata.keep_alive(self.lease)
            except LeaseNotFound:
                if self._has_left:
                    return
                raise
            except STORE_FAILURES as error:
                outage.report(error, proven=self.proven)
                continue
            outage.over()
            if not self._has_left:
                self._extend(sent)

    async def tell_leaving(self) -> None:
        """Announce that this run hands over what it owns. Raises Unavailable, Refused, LeaseNotFound."""
        self._member.leaving = True
        await self._write()

    async def leave(self) -> None:
        """Revoke the lease, so that others need not wait until it expires."""
        self._has_left = True
        self._deadline = -math.inf
        try:
            await self._metadata.revoke_lease(self.lease)
        except (*STORE_FAILURES, LeaseNotFound) as error:
            log.warning("lease not revoked", error=str(error))

    async def _write(self) -> None:
        await self._metadata.txn((), [Put(self.key, self._member.SerializeToString(), self.lease)])

    def _extend(self, sent: float) -> None:
        self._deadline = sent + self._ttl * (1 - _MARGIN)


async def stay_registered(
    join: Callable[[], Awaitable[Membership]],
    task_status: trio.TaskStatus[Membership] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep a service that owns nothing registered until cancelled; then revoke its lease.

    ``join`` creates a membership with a new run id and joins. After a lost lease it is called again; until then other
    processes do not see this one. Started after the first join. Raises only before that, and retries while the store
    is unavailable.
    """
    started = False
    outage = Outage("not registered", first=_FIRST_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)
    while True:
        try:
            membership = await join()
        except STORE_FAILURES as error:
            if isinstance(error, Refused) and not started:
                raise
            await outage.pause(error)
            continue
        outage.over()
        if not started:
            task_status.started(membership)
            started = True
        try:
            await membership.keep()
        except LeaseNotFound:
            log.warning("lease lost, registering again", run=membership.run_id)
        finally:
            with trio.move_on_after(_LEAVE_SECONDS, shield=True):
                await membership.leave()
