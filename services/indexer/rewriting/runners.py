"""Ways to run a rewrite: in a process of its own, or in this one for simulations.

A process can be killed at any time, gives way to others, and its memory is free again when it ends.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import trio

from kafscale.errors import CorruptData, Unavailable
from kafscale.records.checksum import Buffer
from kafscale.threads import RunSync
from kafscale.v1.indexer_pb2 import RewriteEvent, RewriteInput, RewriteRequest, RewrittenStep
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from services.indexer.errors import error_of
from services.indexer.rewriting.frames import BEGIN, HEADER_SIZE, Kind, frame_header, parse_frame_header
from services.indexer.rewriting.give_way import give_way
from services.indexer.rewriting.passes import Finished, Pass, Read, Store, Wanted, rewriting

_CHILD = "services.indexer.rewriting.child"
_NICENESS = 10
# The imports also take CPU time, which others may need.
_START = f"import os, runpy, sys; os.nice({_NICENESS}); runpy.run_module(sys.argv[1], run_name='__main__')"
_PIECE_BYTES = 1 << 20
"""How much is passed on before the process does other work."""


class Work(Protocol):
    """A rewrite that runs."""

    async def next(self, answer: Buffer | None) -> Wanted | None:
        """Answer what was wanted last, and return what is wanted next, or None at the end. The first answer is None.

        Raises CorruptData, InvalidRequest, Unavailable (`services.indexer.rewriting.passes.rewriting`).
        """
        ...


Runner = Callable[[RewriteRequest, bytes, int], AbstractAsyncContextManager[Work]]
"""Opens the rewrite of a request that was checked, with the secret of its keys and the time of creation in ms."""


def run_with(run_sync: RunSync) -> Runner:
    """Return a runner that runs the parts of a rewrite between its requests with ``run_sync``."""

    @asynccontextmanager
    async def run(request: RewriteRequest, secret: bytes, created_ms: int) -> AsyncIterator[Work]:
        yield _Inline(rewriting(request, secret=secret, created_ms=created_ms), run_sync)

    return run


@asynccontextmanager
async def run_in_process(request: RewriteRequest, secret: bytes, created_ms: int) -> AsyncIterator[Work]:
    """Run a rewrite in a process of its own, which is killed at the exit. Raises Unavailable if none can be started."""
    # The modules of this process, whatever the current directory has.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-P", "-c", _START, _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
    except OSError as error:
        raise Unavailable(f"no process to rewrite in: {error}") from error
    try:
        yield _InProcess(process, request, BEGIN.pack(created_ms, secret))
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()


class _Inline:
    def __init__(self, work: Pass, run_sync: RunSync) -> None:
        self._work = work
        self._run_sync = run_sync

    async def next(self, answer: Buffer | None) -> Wanted | None:
        def proceed() -> Wanted | None:
            try:
                return self._work.send(answer)
            except StopIteration:
                return None

        return await self._run_sync(proceed)


class _Ended(Exception):
    """The process has closed its output."""


class _InProcess:
    def __init__(self, process: trio.Process, request: RewriteRequest, begin: bytes) -> None:
        if process.stdin is None or process.stdout is None:
            raise TypeError("the process has no pipes")
        self._process = process
        self._incoming, self._outgoing = process.stdout, process.stdin
        self._request: RewriteRequest | None = request
        self._begin = begin

    async def next(self, answer: Buffer | None) -> Wanted | None:
        try:
            if self._request is not None:
                await self._send(Kind.BEGIN, self._begin)
                await self._send(Kind.REQUEST, self._request.SerializeToString())
                self._request = None
            elif answer is not None:
                await self._send(Kind.OBJECT, answer)
            return await self._wanted()
        except (trio.BrokenResourceError, _Ended):
            status = await self._process.wait()
            raise Unavailable(f"the process that rewrites ended with status {status}") from None

    async def _wanted(self) -> Wanted | None:
        kind, received = await self._receive()
        content = bytes(received)
        if kind == Kind.READ:
            return Read(RewriteInput.FromString(content))
        if kind == Kind.ENTRY:
            index = await self._expect(Kind.INDEX)
            return Store(RewrittenEntry.FromString(content), index, await self._expect(Kind.OBJECT))
        if kind == Kind.STEP:
            return Finished(RewrittenStep.FromString(content))
        if kind == Kind.FAILED:
            event = RewriteEvent.FromString(content)
            raise error_of(event.status, event.detail)
        if kind == Kind.END:
            return None
        raise _unexpected(kind)

    async def _send(self, kind: Kind, content: Buffer) -> None:
        await self._outgoing.send_all(frame_header(kind, len(content)))
        view = memoryview(content)
        for start in range(0, len(view), _PIECE_BYTES):
            if start:
                await give_way()
            await self._outgoing.send_all(view[start : start + _PIECE_BYTES])

    async def _expect(self, expected: Kind) -> bytearray:
        kind, content = await self._receive()
        if kind != expected:
            raise _unexpected(kind)
        return content

    async def _receive(self) -> tuple[Kind, bytearray]:
        try:
            kind, size = parse_frame_header(bytes(await self._read(HEADER_SIZE)))
        except CorruptData as error:
            raise Unavailable(f"the process that rewrites sends {error}") from error
        return kind, await self._read(size)

    async def _read(self, size: int) -> bytearray:
        data, done = bytearray(size), 0
        view = memoryview(data)
        while done < size:
            if done and done % _PIECE_BYTES == 0:
                await give_way()
            received = await self._incoming.receive_some(min(size - done, _PIECE_BYTES - done % _PIECE_BYTES))
            if not received:
                raise _Ended
            view[done : done + len(received)] = received
            done += len(received)
        return data


def _unexpected(kind: Kind) -> Unavailable:
    return Unavailable(f"the process that rewrites sends a frame of kind {kind.name} out of turn")
