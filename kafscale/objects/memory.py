"""An object store in memory with programmable faults, for tests and for simulations of a slow, faulty or dying S3."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

import trio

from kafscale.errors import Unavailable
from kafscale.objects.interface import MAX_KEYS, Body, Object, ObjectInfo, ObjectNotFound, PreconditionFailed
from kafscale.objects.keys import check_key, check_keys, check_limit, check_range

T = TypeVar("T")
Kind = Literal["put_if_absent", "replace_if_match", "get", "get_range", "head", "list_from", "delete_many"]


@dataclass(frozen=True, slots=True)
class Call:
    """A requested operation. ``keys`` has one key, a listing's prefix, or the keys of a delete."""

    kind: Kind
    keys: tuple[str, ...]
    size: int = 0  # bytes to store

    @property
    def key(self) -> str:
        return self.keys[0]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one operation: wait ``delay`` seconds, wait for ``hold``, raise ``error``, in this order.

    ``applied`` is the fate of an operation that ends in ``error``: ``never`` applied; applied ``before``, so that only
    its answer is lost; or applied ``later``, when ``MemoryObjectStore.land_stray`` is called.
    """

    delay: float = 0.0
    hold: trio.Event | None = None
    error: Exception | None = None
    applied: Literal["never", "before", "later"] = "never"


Plan = Callable[[Call], Fault | None]


class MemoryObjectStore:
    """``kafscale.objects.interface.ObjectStore``. ``plan`` is called once per operation and returns its fault, if any.

    ``calls`` holds every requested operation in order, including failed ones.
    """

    def __init__(
        self,
        plan: Plan | None = None,
        *,
        settle_seconds: float = 0.0,
        sleep: Callable[[float], Awaitable[object]] = trio.sleep,
    ) -> None:
        self.plan = plan
        self.settle_seconds = settle_seconds
        self.clock_skew_seconds: float | None = None
        self.calls: list[Call] = []
        self._sleep = sleep
        self._objects: dict[str, Object] = {}
        self._stray: list[Callable[[], object]] = []
        self._versions = 0

    def count(self, *kinds: Kind) -> int:
        """Return the number of requested operations of these kinds."""
        return sum(call.kind in kinds for call in self.calls)

    def land_stray(self) -> None:
        """Apply the operations that were delayed by ``applied="later"``, oldest first, if their preconditions hold."""
        stray, self._stray = self._stray, []
        for apply in stray:
            try:
                apply()
            except PreconditionFailed:
                continue

    def now(self) -> float:
        return trio.current_time()

    async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        check_key(key)
        kept = bytes(body)

        def apply() -> str:
            if key in self._objects:
                raise PreconditionFailed(f"{key} exists")
            return self._store(key, kept)

        return await self._run(Call("put_if_absent", (key,), len(kept)), apply)

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        check_key(key)
        kept = bytes(body)

        def apply() -> str:
            found = self._objects.get(key)
            if found is None or found.etag != etag:
                raise PreconditionFailed(f"{key} does not have etag {etag}")
            return self._store(key, kept)

        return await self._run(Call("replace_if_match", (key,), len(kept)), apply)

    async def get(self, key: str) -> Object:
        check_key(key)
        return await self._run(Call("get", (key,)), lambda: self._find(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_key(key)
        check_range(start, length)
        return await self._run(Call("get_range", (key,)), lambda: self._find(key).body[start : start + length])

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return await self._run(Call("head", (key,)), lambda: _info(key, self._find(key)))

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        check_limit(limit)

        def apply() -> list[ObjectInfo]:
            # Python orders str by code point, which equals the order of the UTF-8 bytes.
            keys = sorted(key for key in self._objects if key.startswith(prefix) and key > start_after)
            return [_info(key, self._objects[key]) for key in keys[:limit]]

        return await self._run(Call("list_from", (prefix,)), apply)

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        if dated is not None and self.settle_seconds and self.now() > dated + self.settle_seconds:
            raise Unavailable("the delete's signature has expired")
        checked = check_keys(keys)

        def apply() -> None:
            for key in checked:
                self._objects.pop(key, None)

        await self._run(Call("delete_many", tuple(checked)), apply)

    async def _run(self, call: Call, apply: Callable[[], T]) -> T:
        self.calls.append(call)
        fault = (self.plan and self.plan(call)) or Fault()
        await trio.lowlevel.checkpoint()
        if fault.delay:
            await self._sleep(fault.delay)
        if fault.hold is not None:
            await fault.hold.wait()
        if fault.error is None:
            return apply()
        if fault.applied == "before":
            apply()
        elif fault.applied == "later":
            self._stray.append(apply)
        raise fault.error

    def _store(self, key: str, body: bytes) -> str:
        self._versions += 1
        etag = f"v{self._versions}"
        self._objects[key] = Object(body, etag)
        return etag

    def _find(self, key: str) -> Object:
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectNotFound(key) from None


def _info(key: str, found: Object) -> ObjectInfo:
    return ObjectInfo(key, len(found.body), found.etag)
