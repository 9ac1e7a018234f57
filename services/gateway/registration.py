"""Registers this gateway under a lease and obtains its node id."""

import random
from collections.abc import Callable

import structlog
import trio

from kafscale.config.listeners import Listener
from kafscale.errors import ConfigError
from kafscale.metadata.interface import LeaseNotFound, MetadataStore
from kafscale.metadata.membership import Membership, new_run_id, stay_registered
from kafscale.metadata.node_ids import Claim, NodeIds, instance_of
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.process.version import kafscale_version
from kafscale.v1.metadata_pb2 import Member

_LEAVING_SECONDS = 1.0
_CLAIM_AGAIN_SECONDS = 0.05
_TAKEN_SECONDS = 1.0
"""How long to wait before the next attempt to claim an id that another gateway has."""
_EXPIRY_SECONDS = 2.0
"""How long after its expiry the store may take to end a lease."""

_log = structlog.get_logger(__name__)


class Registration:
    """``listeners`` have their bound ports. If ``configured_id`` is None, the lowest free node id is claimed."""

    def __init__(
        self,
        store: MetadataStore,
        namespace: str,
        *,
        listeners: tuple[Listener, ...],
        address: str,
        configured_id: int | None,
        lease_ttl_seconds: int,
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._ttl = lease_ttl_seconds
        self._now_ms = now_ms
        self._clock = clock
        self._member = Member(
            format=1,
            service="gateway",
            address=address,
            version=kafscale_version(),
            listeners=[
                Member.Listener(name=each.name, host=each.advertised_host, port=each.advertised_port)
                for each in listeners
            ],
        )
        self._ids = NodeIds(store, namespace, instance=instance_of(self._member), configured_id=configured_id)
        self._membership: Membership | None = None

    @property
    def node_id(self) -> int:
        """The node id. Valid after `run` has started. It can change after a lease was lost."""
        return self._member.node_id

    @property
    def membership(self) -> Membership | None:
        """The current membership, or None before the first registration."""
        return self._membership

    async def run(self, task_status: trio.TaskStatus[Membership] = trio.TASK_STATUS_IGNORED) -> None:
        """Stay registered until cancelled, then leave. Raises ConfigError if another gateway has the configured id."""
        await stay_registered(self._join, task_status)

    async def announce_leaving(self) -> None:
        """Announce that this gateway is leaving, so that no more clients are sent to it. Gives up after a second."""
        if self._membership is None:
            return
        with trio.move_on_after(_LEAVING_SECONDS):
            try:
                await self._membership.tell_leaving()
            except (*STORE_FAILURES, LeaseNotFound) as error:
                _log.warning("cannot announce that this gateway is leaving", reason=str(error))

    async def _claim(self) -> Claim:
        """Claim an id. If the configured id is in use, wait for one lease to expire: it may be of a previous run."""
        until = trio.current_time() + self._ttl + _EXPIRY_SECONDS
        while True:
            try:
                return await self._ids.claim()
            except ConfigError as error:
                if trio.current_time() >= until:
                    raise
                _log.warning("node id in use, waiting for its lease to expire", reason=str(error))
                await trio.sleep(_TAKEN_SECONDS)

    async def _join(self) -> Membership:
        while True:
            claim = await self._claim()
            member = Member()
            member.CopyFrom(self._member)
            member.run_id, member.node_id, member.started_ms = new_run_id(), claim.node_id, self._now_ms()
            membership = Membership(
                self._store, namespace=self._namespace, member=member, ttl_seconds=self._ttl, clock=self._clock
            )
            confirmed = False
            try:
                await membership.join()
                confirmed = await self._ids.confirm(claim)
            finally:
                if not confirmed and membership.lease:
                    with trio.move_on_after(_LEAVING_SECONDS, shield=True):
                        await membership.leave()
            if confirmed:
                self._member.node_id = claim.node_id
                self._membership = membership
                _log.info("registered", node_id=claim.node_id, run=member.run_id)
                return membership
            await trio.sleep(random.uniform(0, _CLAIM_AGAIN_SECONDS))  # noqa: S311  not a secret
