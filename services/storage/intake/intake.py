"""The intake of one run: its register, its chain, and what it recovers from the intakes of others."""

from collections.abc import Callable

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.intake.listing import WINDOW
from kafscale.metadata.interface import LeaseNotFound
from kafscale.metadata.membership import Membership
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.segment.format import MAX_OFFSET
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.dependencies import Dependencies
from services.storage.intake.known import unknown_intake
from services.storage.intake.pace import Pace
from services.storage.intake.recovery import IntakeRecovery
from services.storage.intake.register import Register, RegisterMissing, open_register, seal_register
from services.storage.intake.writer import IntakeWriter
from services.storage.log.partition import Partition

log = structlog.get_logger()

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_LONGEST_UNPROVEN_SECONDS = 24 * 3600.0
_UNPROVEN_CHECK_SECONDS = 60.0


class Intake:
    """Records go into it if the cluster has state format 2. Before `start` has returned, the run has no register.

    ``durable`` and ``too_long`` are those of `IntakeWriter`.
    """

    def __init__(
        self,
        deps: Dependencies,
        membership: Membership,
        *,
        nursery: trio.Nursery,
        durable: Callable[[Partition], None],
        too_long: Callable[[Partition], None],
    ) -> None:
        settings = deps.settings
        self._deps = deps
        self._membership = membership
        self._nursery = nursery
        self.register: Register | None = None
        self.is_on = False
        """Whether records of this run go into its intake."""
        self.unknown = ""
        """A run whose intake is in the bucket although the metadata does not know it; empty if there is none."""
        self.writer = IntakeWriter(
            deps.single_tries or deps.objects,
            nursery=nursery,
            namespace=deps.namespace,
            run_id=membership.run_id,
            pace=Pace(
                settings.intake_puts_per_second,
                settings.intake_put_burst,
                gather=settings.intake_gather_ms / 1000,
                now=trio.current_time(),
            ),
            # Where puts cost nothing, what arrives during one shares the next.
            window=WINDOW if settings.intake_puts_per_second else 1,
            put_bytes=min(settings.intake_put_bytes, settings.intake_object_bytes),
            object_bytes=settings.intake_object_bytes,
            chain_bytes=settings.intake_chain_bytes,
            now_ms=deps.now_ms,
            run_sync=deps.run_sync,
            durable=durable,
            too_long=too_long,
            segments_end=self._segments_end_of,
            counters=deps.counters,
            tracer=deps.tracer,
        )
        self.recovery = IntakeRecovery(
            deps.objects,
            deps.metadata,
            nursery=nursery,
            namespace=deps.namespace,
            now_ms=deps.now_ms,
            counters=deps.counters,
            quiet=self.writer.quiet,
        )

    @property
    def is_immediate(self) -> bool:
        """Whether records become durable without delay, because puts cost nothing."""
        return self.is_on and not self._deps.settings.intake_puts_per_second

    async def start(self) -> None:
        """Write the register, look for unknown intakes, and start the tasks. Retries until that succeeds."""
        deps = self._deps
        self.register = await open_register(deps.metadata, deps.namespace, self._membership.run_id)
        self.is_on = self.register.has_intake
        # Also without an own intake: metadata from before the state format was raised knows none.
        await self._look_for_unknown()
        if self.is_on:
            self._nursery.start_soon(self.writer.run)
            self._nursery.start_soon(self._end_if_unproven)

    async def seal_register(self) -> None:
        """Say that this run takes over nothing more, so that its intake can be removed."""
        try:
            await seal_register(self._deps.metadata, self._deps.namespace, self._membership.run_id, own=True)
        except (*STORE_FAILURES, RegisterMissing) as error:
            # Another instance seals it once this run has left.
            log.warning("intake register not sealed", error=str(error))

    async def _look_for_unknown(self) -> None:
        deps = self._deps
        outage = Outage("looking for intakes failed, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            try:
                self.unknown = await unknown_intake(deps.objects, deps.metadata, deps.namespace)
                break
            except KafscaleError as error:
                await outage.pause(error)
        if self.unknown:
            log.error("metadata was rolled back, taking over nothing", unknown_intake=self.unknown)

    async def _end_if_unproven(self) -> None:
        """End a run that may have been sealed long ago, before the seal that would stop it is deleted."""
        while True:
            await trio.sleep(_UNPROVEN_CHECK_SECONDS)
            if self._membership.unproven_seconds >= _LONGEST_UNPROVEN_SECONDS:
                raise LeaseNotFound("the lease could not be confirmed for a day")

    async def _segments_end_of(self, partition: Partition) -> int:
        """Return where the segments of a partition of another run end. Raises Unavailable, Refused."""
        ref = partition.ref
        key = paths.partition_state_key(self._deps.namespace, ref.topic, ref.partition)
        now = await self._deps.metadata.get(key)
        state = PartitionState.FromString(now.value) if now is not None else PartitionState()
        return state.high_watermark if state.topic_id == ref.topic_id else MAX_OFFSET
