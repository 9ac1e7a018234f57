"""Objects as files of one directory tree: a blocking half of ``local.py``, safe to call from several threads.

Layout: ``objects/{key}`` is an object's bytes, ``tmp/`` holds files being written. An object's file is never written in
place: its bytes are written to ``tmp/`` and fsynced, then linked (create) or renamed (replace) to its name. So a crash
leaves the whole object or none, but never a torn file under the name. The directory that contains the name is fsynced
before the call returns, and so are the directories above it unless this process has already done so, because an earlier
process may have created them and died before its fsync.
"""

import heapq
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafscale.objects.disk import make_directories, read_at, sync_directory, translated
from kafscale.objects.interface import Body, Object, ObjectInfo, ObjectNotFound, PreconditionFailed, whole
from kafscale.objects.keys import check_key, may_begin_key

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class ObjectDirectory:
    """The files under ``root``. Only one instance at a time may use a root (``local.py`` holds the lock)."""

    def __init__(self, root: Path) -> None:
        self._objects = os.fsencode(root / "objects")
        self._temporary = os.fsencode(root / "tmp")
        self._tree = threading.Lock()  # held while names change (link, rename, unlink, mkdir, rmdir), not during writes
        self._durable: set[bytes] = set()  # directories whose own names are known to be on disk
        self._prunes = 0
        self._last_mtime = 0

    def prepare(self) -> None:
        """Create missing directories, delete unfinished files of a crash, and check that hard links are supported."""
        for directory in (self._objects, self._temporary):
            make_directories(directory)
        for name in os.listdir(self._temporary):
            os.unlink(os.path.join(self._temporary, name))
        with self._temporary_file(b"") as (temporary, _):
            os.link(temporary, temporary + b".link")
            os.unlink(temporary + b".link")

    def has(self, key: str) -> bool:
        return os.path.lexists(self._path(key))

    def create(self, key: str, body: Body) -> str:
        path = self._path(key)
        with translated(key), self._temporary_file(body) as (temporary, etag):
            with self._tree:
                undurable = self._make_parents(path)
                prunes = self._prunes
                try:
                    os.link(temporary, path)
                    exists = False
                except FileExistsError:
                    exists = True
            # Also if it exists: a caller that lost the answer and reads its own bytes back must find them durable.
            self._sync_parents(path, undurable, prunes)
        if exists:
            raise PreconditionFailed(f"{key} exists")
        return etag

    def replace(self, key: str, body: Body, etag: str) -> str:
        path = self._path(key)
        with translated(key), self._temporary_file(body) as (temporary, new_etag):
            with self._tree:
                matches = _etag_of(path) == etag
                if matches:
                    os.replace(temporary, path)
            sync_directory(os.path.dirname(path))
        if not matches:
            raise PreconditionFailed(f"{key} does not have etag {etag}")
        return new_etag

    def read(self, key: str) -> Object:
        with translated(key), self._opened(key) as (descriptor, status):
            return Object(read_at(descriptor, 0, status.st_size), _etag(status))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        with translated(key), self._opened(key) as (descriptor, status):
            return read_at(descriptor, start, max(0, min(length, status.st_size - start)))

    def info(self, key: str) -> ObjectInfo:
        with translated(key), self._opened(key) as (_, status):
            return ObjectInfo(key, status.st_size, _etag(status))

    def has_directory_of(self, prefix: str) -> bool:
        """Whether the directory exists that has the objects with this prefix. No key begins with some prefixes."""
        if not may_begin_key(prefix):
            return False
        with translated(prefix):
            try:
                os.stat(os.path.join(self._objects, prefix[: prefix.rfind("/") + 1].encode()))
            except _ABSENT:
                return False
        return True

    def list_from(self, prefix: str, start_after: str, limit: int) -> list[ObjectInfo]:
        """Read only the directories that can hold a key of the page, in order."""
        page: list[ObjectInfo] = []
        if not may_begin_key(prefix):
            return page
        base = prefix[: prefix.rfind("/") + 1]
        with translated(prefix):
            for key, status in self._walk(base.encode(), prefix.encode(), start_after.encode()):
                page.append(ObjectInfo(key.decode(), status.st_size, _etag(status)))
                if len(page) == limit:
                    break
        return page

    def delete(self, keys: list[str]) -> None:
        """Unlink the files, remove directories that became empty, and fsync once per directory, not per object.

        A power failure in between may bring objects back, as if the call had not reached them.
        """
        touched: set[bytes] = set()
        for key in keys:
            path = self._path(key)
            with translated(key), self._tree, suppress(*_ABSENT):
                os.unlink(path)
                touched.add(self._prune(os.path.dirname(path)))
        for directory in touched:
            with translated(os.fsdecode(directory)):
                sync_directory(directory)

    def _path(self, key: str) -> bytes:
        return os.path.join(self._objects, check_key(key))

    @contextmanager
    def _temporary_file(self, body: Body) -> Iterator[tuple[bytes, str]]:
        """Yield the path of a new file in ``tmp/`` with ``body`` on disk, and the etag that it keeps under any name."""
        with self._tree:
            # Strictly increasing, so that no two versions of an object share an etag, however coarse the clock.
            mtime = self._last_mtime = max(time.time_ns(), self._last_mtime + 1)
        path = os.path.join(self._temporary, b"%d" % mtime)
        try:
            yield path, _write(path, body, mtime)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _make_parents(self, path: bytes) -> list[bytes]:
        """Create the directories above ``path``. Return those, lowest first, whose names may not be on disk."""
        undurable = []
        directory = os.path.dirname(path)
        while directory != self._objects and directory not in self._durable:
            undurable.append(directory)
            directory = os.path.dirname(directory)
        for directory in reversed(undurable):
            with suppress(FileExistsError):
                os.mkdir(directory)
        return undurable

    def _sync_parents(self, path: bytes, undurable: list[bytes], prunes: int) -> None:
        sync_directory(os.path.dirname(path))
        for directory in undurable:
            sync_directory(os.path.dirname(directory))
        with self._tree:
            if self._prunes == prunes:  # else one may have been removed and created again, not yet on disk
                self._durable.update(undurable)

    def _prune(self, directory: bytes) -> bytes:
        """Remove ``directory`` and those above it while they are empty. Return the lowest one that remains."""
        while directory != self._objects:
            try:
                os.rmdir(directory)
            except OSError:
                break
            self._prunes += 1
            self._durable.discard(directory)
            directory = os.path.dirname(directory)
        return directory

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, os.stat_result]]:
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        except _ABSENT:
            raise ObjectNotFound(key) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ObjectNotFound(key)
            yield descriptor, status
        finally:
            os.close(descriptor)

    def _walk(self, base: bytes, prefix: bytes, after: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield files below ``base`` (empty, or ending in a slash) in key order. Directories sort as name and slash."""
        ordered: list[bytes] = []
        try:
            with os.scandir(os.path.join(self._objects, base)) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        name = base + entry.name + b"/"
                        beyond = name > after or after.startswith(name)
                    else:
                        name = base + entry.name
                        beyond = name > after
                    if beyond and name.startswith(prefix):
                        ordered.append(name)
        except _ABSENT:
            return
        heapq.heapify(ordered)  # a page needs only the lowest few of possibly very many names
        while ordered:
            name = heapq.heappop(ordered)
            if name.endswith(b"/"):
                yield from self._walk(name, prefix, after)
            else:
                with suppress(*_ABSENT):
                    yield name, os.stat(os.path.join(self._objects, name))


def _etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"


def _etag_of(path: bytes) -> str | None:
    try:
        return _etag(os.stat(path))
    except _ABSENT:
        return None


def _write(path: bytes, body: Body, mtime: int) -> str:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        remaining = memoryview(whole(body))
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
        os.utime(descriptor, ns=(mtime, mtime))
        os.fsync(descriptor)
        return _etag(os.fstat(descriptor))
    finally:
        os.close(descriptor)
