"""This run's lease: the sign of life that take-overs look at, and until when this run may still answer as an owner."""

import math
import time
from collections.abc import Callable

import structlog
import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import LeaseNotFound, MetadataStore, Put
from kafscale.v1.metadata_pb2 import Member

log = structlog.get_logger()

_MARGIN = 0.2  # of the time to live: what the proof is short of it


def suspension_clock() -> float:
    """Seconds on a clock that goes on while the machine sleeps, unlike Trio's."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Membership:
    """Registers the run under a lease and keeps it alive.

    ``proven`` is true up to the time the last keepalive was *sent* plus the time to live, less a margin: until then
    nobody else can have taken over.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        *,
        namespace: str,
        run_id: str,
        ttl_seconds: int,
        started_ms: int,
        clock: Callable[[], float] = suspension_clock,
    ) -> None:
        self._metadata = metadata
        self._namespace = namespace
        self._ttl = ttl_seconds
        self._clock = clock
        self._member = Member(format=1, run_id=run_id, service="storage", started_ms=started_ms)
        self._deadline = -math.inf
        self.run_id = run_id
        self.lease = 0

    @property
    def proven(self) -> bool:
        return self._clock() < self._deadline

    async def join(self) -> None:
        """Take a lease and write the member key under it."""
        sent = self._clock()
        self.lease = await self._metadata.grant_lease(self._ttl)
        key = paths.member_key(self._namespace, "storage", self.run_id)
        await self._metadata.txn((), [Put(key, self._member.SerializeToString(), self.lease)])
        self._extend(sent)

    async def keep(self) -> None:
        """Renew the lease until it is lost, which raises LeaseNotFound."""
        while True:
            await trio.sleep(self._ttl / 4)
            sent = self._clock()
            try:
                await self._metadata.keep_alive(self.lease)
            except Unavailable as error:
                log.warning("lease not renewed", error=str(error), proven=self.proven)
                continue
            self._extend(sent)

    async def leave(self) -> None:
        """Give the lease back, so that others need not wait for its end."""
        self._deadline = -math.inf
        try:
            await self._metadata.revoke_lease(self.lease)
        except (Unavailable, LeaseNotFound) as error:
            log.warning("lease not given back", error=str(error))

    def _extend(self, sent: float) -> None:
        self._deadline = sent + self._ttl * (1 - _MARGIN)
