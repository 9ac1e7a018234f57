"""Reads the objects of a rewrite, some of them before they are asked for, because each takes the time of a request."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import trio

from kafscale.errors import KafscaleError
from kafscale.v1.indexer_pb2 import RewriteInput
from services.indexer.rewriting.give_way import give_way

_MOST = 16
"""Objects read ahead at the same time."""


@dataclass(slots=True, eq=False)
class _Begun:
    """An object that is being read, or that was read. ``size``: in bytes, as the request says."""

    input: RewriteInput
    size: int
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    result: bytes | KafscaleError = b""


class ReadAhead:
    """``inputs``: what will be asked for, in this order, but for some that are left out. ``read`` reads one of them.

    At most ``most_bytes`` are read ahead, of objects whose size is known. Their tasks run in ``nursery``.
    """

    def __init__(
        self,
        inputs: Iterable[RewriteInput],
        read: Callable[[RewriteInput], Awaitable[bytes]],
        *,
        most_bytes: int,
        nursery: trio.Nursery,
    ) -> None:
        self._left = deque(inputs)
        self._read = read
        self._most_bytes = most_bytes
        self._nursery = nursery
        self._begun: deque[_Begun] = deque()
        self._bytes = 0
        self._turn = trio.Lock()

    async def get(self, one: RewriteInput) -> bytes:
        """Return the object. Raises what ``read`` raises."""
        found = self._find(one)
        self._begin()
        if found is None:
            await self._rest()
            return await self._read(one)
        await found.ended.wait()
        if isinstance(found.result, KafscaleError):
            raise found.result
        return found.result

    def _find(self, one: RewriteInput) -> _Begun | None:
        """Return the object if it is read ahead, and leave out all before it."""
        while self._begun:
            first = self._begun.popleft()
            self._bytes -= first.size
            if first.input == one:
                return first
            first.scope.cancel()
        while self._left and self._left.popleft() != one:
            pass
        return None

    def _begin(self) -> None:
        while self._left and len(self._begun) < _MOST:
            size = _size(self._left[0])
            if not size or self._bytes + size > self._most_bytes:
                return
            begun = _Begun(self._left.popleft(), size)
            self._begun.append(begun)
            self._bytes += size
            self._nursery.start_soon(self._read_into, begun)

    async def _rest(self) -> None:
        async with self._turn:
            await give_way()

    async def _read_into(self, begun: _Begun) -> None:
        with begun.scope:
            try:
                await self._rest()
                begun.result = await self._read(begun.input)
            except KafscaleError as error:
                begun.result = error
            begun.ended.set()


def _size(one: RewriteInput) -> int:
    return one.rewritten.size if one.HasField("rewritten") else one.size
