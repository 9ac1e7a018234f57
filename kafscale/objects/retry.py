"""Retries requests that a store did not answer: the outermost wrapper, around ``metrics.py``, which sees each try."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.objects.interface import (
    MAX_KEYS,
    Body,
    Object,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PreconditionFailed,
    whole,
)

T = TypeVar("T")

_SILENT_SECONDS = 2.0
"""An operation that keeps failing for longer is logged, once."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Times in seconds. ``deadline`` limits the whole operation. Before attempt n+1, a random part of first * 2**n
    passes, at most ``longest``."""

    deadline: float = 30.0
    first: float = 0.1
    longest: float = 3.0


class RetryingObjectStore:
    """Retries on Unavailable until the deadline, then raises Unavailable. Every other answer is final.

    A retried put may conflict with its own first attempt. So on PreconditionFailed after an Unavailable the object is
    read back, and equal bytes mean that the put succeeded. ``delete_many`` is not retried (see ``interface.py``).
    ``random`` returns a number from 0 to 1.
    """

    def __init__(self, inner: ObjectStore, random: Callable[[], float], backoff: Backoff | None = None) -> None:
        self.inner = inner
        """The store without retries."""
        self._random = random
        self._backoff = backoff or Backoff()

    @property
    def settle_seconds(self) -> float:
        return self.inner.settle_seconds

    @property
    def clock_skew_seconds(self) -> float | None:
        return self.inner.clock_skew_seconds

    def now(self) -> float:
        return self.inner.now()

    async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        first = True

        def put() -> Awaitable[str]:
            nonlocal first
            # A repetition has less time left.
            seconds, first = send_seconds if first else 0.0, False
            return self.inner.put_if_absent(key, body, send_seconds=seconds)

        return await self._put(key, body, put)

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        return await self._put(key, body, lambda: self.inner.replace_if_match(key, body, etag))

    async def get(self, key: str) -> Object:
        return await self._repeat(key, lambda: self.inner.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._repeat(key, lambda: self.inner.get_range(key, start, length))

    async def head(self, key: str) -> ObjectInfo:
        return await self._repeat(key, lambda: self.inner.head(key))

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        return await self._repeat(prefix, lambda: self.inner.list_from(prefix, start_after, limit))

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        await self.inner.delete_many(keys, dated=dated, unused=unused)

    async def _put(self, key: str, body: Body, put: Callable[[], Awaitable[str]]) -> str:
        in_doubt = False

        async def attempt() -> str:
            nonlocal in_doubt
            try:
                return await put()
            except Unavailable:
                in_doubt = True
                raise
            except PreconditionFailed as refusal:
                if not in_doubt:
                    raise
                return await self._own_etag(key, body, refusal)

        return await self._repeat(key, attempt)

    async def _own_etag(self, key: str, body: Body, refusal: PreconditionFailed) -> str:
        """Return the etag if the object is what an earlier attempt of this put stored; otherwise raise ``refusal``."""
        try:
            found = await self.inner.get(key)
        except ObjectNotFound:
            raise refusal from None
        if found.body != whole(body):
            raise refusal
        return found.etag

    async def _repeat(self, key: str, attempt: Callable[[], Awaitable[T]]) -> T:
        last: Unavailable | None = None
        reported, report_after = False, trio.current_time() + _SILENT_SECONDS
        with trio.move_on_after(self._backoff.deadline):
            ceiling = self._backoff.first
            while True:
                try:
                    return await attempt()
                except Unavailable as error:
                    last = error
                if not reported and trio.current_time() >= report_after:
                    reported = True
                    _log.warning("the object store does not answer, retrying", key=key, error=str(last))
                await trio.sleep(ceiling * self._random())
                ceiling = min(2 * ceiling, self._backoff.longest)
        raise Unavailable(f"{key}: no answer within {self._backoff.deadline:g} s; last error: {last}") from last
