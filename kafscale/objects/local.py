"""The object store of the embedded default: one local directory, used by one process at a time."""

import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from kafscale.errors import ConfigError
from kafscale.objects.files import ObjectDirectory, make_directories
from kafscale.objects.interface import MAX_KEYS, Body, Object, ObjectInfo
from kafscale.objects.keys import check_key, check_keys, check_limit, check_range
from kafscale.threads import RunSync, run_in_threads_of, run_inline

T = TypeVar("T")

_THREADS = 16  # that wait for the disk at the same time; more would only queue in the kernel
_INLINE_BYTES = 256 << 10
"""Without fsync, writing less than this costs less than a thread."""


class LocalObjectStore:
    """``kafscale.objects.interface.ObjectStore`` on a directory. Created by ``open``."""

    settle_seconds = 0.0
    clock_skew_seconds = None

    def __init__(self, files: ObjectDirectory, run_sync: RunSync, is_unsynced: Callable[[str], bool]) -> None:
        self._files = files
        self._run_sync = run_sync
        self._is_unsynced = is_unsynced

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        directory: Path,
        *,
        run_sync: RunSync | None = None,
        is_unsynced: Callable[[str], bool] = lambda _: False,
    ) -> AsyncIterator["LocalObjectStore"]:
        """Lock the directory for this process and clean up after a crash.

        New objects whose keys ``is_unsynced`` accepts are not fsynced: they survive the end of this process, but a
        power failure may remove them or leave a part of them.

        Raises ConfigError, which names KAFSCALE_DATA_DIR, if another process has locked it or it cannot be used.
        """
        run_sync = run_sync or run_in_threads_of(trio.CapacityLimiter(_THREADS))
        with _locked(directory):
            files = ObjectDirectory(directory)
            try:
                await run_sync(files.prepare)
            except OSError as error:
                raise _unusable(directory, error) from error
            yield cls(files, run_sync, is_unsynced)

    def now(self) -> float:
        return time.time()

    async def put_if_absent(self, key: str, body: Body) -> str:
        check_key(key)
        create = partial(self._files.create, key, body, sync=not self._is_unsynced(key))
        if self._is_unsynced(key) and len(body) < _INLINE_BYTES:
            return await run_inline(create)
        return await self._run_sync(create)

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        check_key(key)
        return await self._run_sync(partial(self._files.replace, key, body, etag))

    async def get(self, key: str) -> Object:
        check_key(key)
        return await self._run_sync(partial(self._files.read, key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_key(key)
        check_range(start, length)
        return await self._run_sync(partial(self._files.read_range, key, start, length))

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return await self._run_sync(partial(self._files.info, key))

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        check_limit(limit)
        return await self._run_sync(partial(self._files.list_from, prefix, start_after, limit))

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        await self._run_sync(partial(self._files.delete, check_keys(keys)))


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
