"""The object store of the embedded default: one local directory, used by one process at a time."""

import fcntl
import heapq
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import structlog
import trio

from kafscale.errors import ConfigError
from kafscale.objects.disk import make_directories
from kafscale.objects.files import ObjectDirectory
from kafscale.objects.interface import MAX_KEYS, Body, Object, ObjectInfo, PreconditionFailed
from kafscale.objects.keys import check_key, check_keys, check_limit, check_range
from kafscale.objects.packs import Packs
from kafscale.threads import RunSync, run_in_threads_of

log = structlog.get_logger()

T = TypeVar("T")

_THREADS = 16  # that wait for the disk at the same time; more would only queue in the kernel
_INLINE_BYTES = 2 << 20
"""Without fsync, writing less than this to a pack takes less time than waiting for a thread, as does listing packs."""


class LocalObjectStore:
    """``kafscale.objects.interface.ObjectStore`` on a directory. Created by ``open``."""

    settle_seconds = 0.0
    clock_skew_seconds = None

    def __init__(
        self,
        files: ObjectDirectory,
        packs: Packs,
        *,
        is_packed: Callable[[str], bool],
        inline_bytes: int,
        run_sync: RunSync,
    ) -> None:
        self._files = files
        self._packs = packs
        self._is_packed = is_packed
        self._inline_bytes = inline_bytes
        self._run_sync = run_sync
        # The last directory of packed objects that had no files. Packed objects are files only if an earlier release
        # put them.
        self._without_files = ""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        directory: Path,
        *,
        run_sync: RunSync | None = None,
        is_packed: Callable[[str], bool] = lambda _: False,
        sync_packs: bool = True,
    ) -> AsyncIterator["LocalObjectStore"]:
        """Lock the directory for this process and clean up after a crash.

        New objects whose keys ``is_packed`` accepts share files. If ``sync_packs`` is False, these are not fsynced:
        such objects survive the end of this process, but a power failure may remove them or leave a part of them, and
        may undo deletes of ``unused`` objects.

        Raises ConfigError, which names KAFSCALE_DATA_DIR, if another process has locked it or it cannot be used.
        """
        run_sync = run_sync or run_in_threads_of(trio.CapacityLimiter(_THREADS))
        with _locked(directory):
            files, packs = ObjectDirectory(directory), Packs(directory, sync=sync_packs)
            try:
                await run_sync(files.prepare)
                damage = await run_sync(packs.prepare)
            except OSError as error:
                raise _unusable(directory, error) from error
            for each in damage:
                log.warning("objects lost in a damaged file", path=each.path, position=each.position)
            with closing(packs):
                inline_bytes = 0 if sync_packs else _INLINE_BYTES
                yield cls(files, packs, is_packed=is_packed, inline_bytes=inline_bytes, run_sync=run_sync)

    def now(self) -> float:
        return time.time()

    async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        check_key(key)
        if self._is_packed(key):
            if len(body) < self._inline_bytes:
                await trio.lowlevel.checkpoint_if_cancelled()
                return self._create_packed(key, body)
            return await self._run_sync(partial(self._create_packed, key, body))
        return await self._run_sync(partial(self._files.create, key, body))

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        check_key(key)
        return await self._run_sync(partial(self._half_of(key).replace, key, body, etag))

    async def get(self, key: str) -> Object:
        check_key(key)
        return await self._run_sync(partial(self._half_of(key).read, key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_key(key)
        check_range(start, length)
        return await self._run_sync(partial(self._half_of(key).read_range, key, start, length))

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return await self._run_sync(partial(self._half_of(key).info, key))

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        check_limit(limit)
        if self._inline_bytes and not self._packs.is_busy and not self._files.has_directory_of(prefix):
            await trio.lowlevel.checkpoint()
            return self._packs.list_from(prefix, start_after, limit)
        return await self._run_sync(partial(self._list_from, prefix, start_after, limit))

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        await self._run_sync(partial(self._delete, check_keys(keys), sync=not unused))

    def _half_of(self, key: str) -> ObjectDirectory | Packs:
        """Return the half that has the object, or that does not know it either."""
        return self._packs if key in self._packs else self._files

    def _create_packed(self, key: str, body: Body) -> str:
        directory = key[: key.rfind("/") + 1]
        if directory != self._without_files:
            if self._files.has(key):
                raise PreconditionFailed(f"{key} exists")
            if not self._files.has_directory_of(directory):
                self._without_files = directory
        return self._packs.create(key, body)

    def _list_from(self, prefix: str, start_after: str, limit: int) -> list[ObjectInfo]:
        pages = (half.list_from(prefix, start_after, limit) for half in (self._files, self._packs))
        return list(islice(heapq.merge(*pages, key=lambda info: info.key.encode()), limit))

    def _delete(self, keys: list[str], *, sync: bool) -> None:
        self._files.delete([key for key in keys if key not in self._packs])
        self._packs.delete(keys, sync=sync)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock file of ``directory``. The kernel releases it when the process ends, however it ends."""
    try:
        make_directories(os.fsencode(directory.absolute()))
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"KAFSCALE_DATA_DIR: another process is using {directory}") from None
        except OSError as error:
            raise _unusable(directory, error) from error
        yield
    finally:
        os.close(descriptor)


def _unusable(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(f"KAFSCALE_DATA_DIR: cannot store objects in {directory}: {error.strerror or error}")
