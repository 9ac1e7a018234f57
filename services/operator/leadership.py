"""Runs the operator's work while this process is the leader."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog
import trio

from kafscale.errors import KafscaleError
from services.operator.counters import OperatorCounters
from services.operator.election import Election, Step
from services.operator.kubernetes import ApiRefused, Kubernetes
from services.operator.resources import LEASE, Object

LEASE_NAME = "kafscale-operator"
_log = structlog.get_logger(__name__)


def utc_now() -> datetime:
    return datetime.now(UTC)


class Leadership:
    """The leadership of candidate ``me``.

    ``seconds`` is the duration of the lease. Without a renewal, the leader stops after two thirds of it.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        counters: OperatorCounters,
        *,
        me: str,
        seconds: int,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._kubernetes = kubernetes
        self._counters = counters
        self._me = me
        self._election = Election(me, LEASE_NAME, seconds)
        self._give_up = seconds * 2 / 3
        self._pause = seconds / 7.5
        self._now = now
        self._lease: Object | None = None

    async def run(self, work: Callable[[], Awaitable[None]], stopping: trio.Event) -> None:
        """Run until ``stopping``, then release the lease. ``work`` is cancelled when the lease may have been lost."""
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                await stopping.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end)
            while True:
                renewed = await self._acquire()
                await self._lead(work, renewed)
        await self._release()

    async def _acquire(self) -> float:
        """Acquire the lease. Returns the time at which the successful request was sent."""
        waiting = False
        while True:
            began = trio.current_time()
            try:
                if await self._step():
                    return began
            except KafscaleError as error:
                _log.warning("cannot acquire the lease", reason=str(error))
            if not waiting and self._lease is not None:
                waiting = True
                _log.info("standing by", leader=self._lease.get("spec", {}).get("holderIdentity"))
            await trio.sleep(self._pause)

    async def _lead(self, work: Callable[[], Awaitable[None]], renewed: float) -> None:
        _log.info("leading", identity=self._me)
        self._counters.leading = True
        scope = trio.CancelScope(deadline=renewed + self._give_up)

        async def renew() -> None:
            while True:
                await trio.sleep(self._pause)
                began = trio.current_time()
                try:
                    if not await self._step():
                        scope.cancel()
                    scope.deadline = began + self._give_up
                except KafscaleError as error:
                    _log.warning("cannot renew the lease", reason=str(error))

        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(renew)
                    await work()
        finally:
            self._counters.leading = False
        _log.warning("no longer leading")

    async def _step(self) -> bool:
        """Acquire or renew the lease, and return whether this candidate holds it.

        Raises ApiUnavailable and ApiRefused, after which it may hold it too.
        """
        self._lease = await self._kubernetes.get(LEASE, LEASE_NAME)
        step = self._election.step(self._lease, trio.current_time())
        if step is Step.WAIT:
            return False
        held = self._election.held(self._lease, self._stamp())
        try:
            if step is Step.CREATE:
                self._lease = await self._kubernetes.create(LEASE, held)
            else:
                self._lease = await self._kubernetes.replace(LEASE, held)
        except ApiRefused as error:
            if error.conflict:
                return False
            raise
        return True

    async def _release(self) -> None:
        """Release the lease, best effort: otherwise others wait until it expires."""
        try:
            # The answer to the last write may have been lost.
            lease = await self._kubernetes.get(LEASE, LEASE_NAME)
            if lease is not None and lease.get("spec", {}).get("holderIdentity") == self._me:
                await self._kubernetes.replace(LEASE, self._election.released(lease, self._stamp()))
        except KafscaleError as error:
            _log.warning("cannot release the lease", reason=str(error))

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
