"""Objects as files of one directory tree: the blocking half of ``local.py``, safe to call from several threads.

Layout: ``objects/{key}`` is an object's bytes, ``tmp/`` holds files being written. An object's file is never written in
place: its bytes are written to ``tmp/`` and fsynced, then linked (create) or renamed (replace) to its name, so a crash
leaves either the whole object or none, and never a torn file that holds the name. The directory that got the name is
fsynced before the call returns, and so are the directories above it as far as this process has not done that already:
an earlier process may have made them and died before its fsync.
"""

import errno
import heapq
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafscale.errors import Refused, Unavailable
from kafscale.objects.interface import Body, Object, ObjectInfo, ObjectNotFound, PreconditionFailed
from kafscale.objects.keys import check_key, may_begin_key

_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR})
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class ObjectDirectory:
    """The files under ``root``; only one instance at a time may use a root (``local.py`` holds the lock)."""

    def __init__(self, root: Path) -> None:
        self._objects = os.fsencode(root / "objects")
        self._temporary = os.fsencode(root / "tmp")
        self._tree = threading.Lock()  # held while names change: link, rename, unlink, mkdir, rmdir; never over a write
        self._durable: set[bytes] = set()  # directories whose own names are known to be on disk
        self._prunes = 0
        self._last_mtime = 0

    def prepare(self) -> None:
        """Make what is missing, remove what a crash left unfinished, and try that the file system has hard links."""
        for directory in (self._objects, self._temporary):
            make_directories(directory)
        for name in os.listdir(self._temporary):
            os.unlink(os.path.join(self._temporary, name))
        with self._temporary_file(b"") as (temporary, _):
            os.link(temporary, temporary + b".link")
            os.unlink(temporary + b".link")

    def create(self, key: str, body: Body) -> str:
        path = self._path(key)
        with _translated(key), self._temporary_file(body) as (temporary, etag):
            with self._tree:
                undurable = self._make_parents(path)
                prunes = self._prunes
                try:
                    os.link(temporary, path)
                    exists = False
                except FileExistsError:
                    exists = True
            # Also when it exists: who reads its own bytes back after a lost answer may then take them for durable.
            self._sync_parents(path, undurable, prunes)
        if exists:
            raise PreconditionFailed(f"{key} exists")
        return etag

    def replace(self, key: str, body: Body, etag: str) -> str:
        path = self._path(key)
        with _translated(key), self._temporary_file(body) as (temporary, new_etag):
            with self._tree:
                matches = _etag_of(path) == etag
                if matches:
                    os.replace(temporary, path)
            _sync_directory(os.path.dirname(path))
        if not matches:
            raise PreconditionFailed(f"{key} does not have etag {etag}")
        return new_etag

    def read(self, key: str) -> Object:
        with _translated(key), self._opened(key) as (descriptor, status):
            return Object(_read(descriptor, 0, status.st_size), _etag(status))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        with _translated(key), self._opened(key) as (descriptor, status):
            return _read(descriptor, start, max(0, min(length, status.st_size - start)))

    def info(self, key: str) -> ObjectInfo:
        with _translated(key), self._opened(key) as (_, status):
            return ObjectInfo(key, status.st_size, _etag(status))

    def list_from(self, prefix: str, start_after: str, limit: int) -> list[ObjectInfo]:
        """Reads the directories that can hold a key of the page, in order, and no others."""
        page: list[ObjectInfo] = []
        if not may_begin_key(prefix):
            return page
        base = prefix[: prefix.rfind("/") + 1]
        with _translated(prefix):
            for key, status in self._walk(base.encode(), prefix.encode(), start_after.encode()):
                page.append(ObjectInfo(key.decode(), status.st_size, _etag(status)))
                if len(page) == limit:
                    break
        return page

    def delete(self, keys: list[str]) -> None:
        """Unlink, remove directories that became empty, and fsync once per directory, not per object.

        A power cut in between brings objects back, which is as if the call had not come that far.
        """
        touched: set[bytes] = set()
        for key in keys:
            path = self._path(key)
            with _translated(key), self._tree, suppress(*_ABSENT):
                os.unlink(path)
                touched.add(self._prune(os.path.dirname(path)))
        for directory in touched:
            with _translated(os.fsdecode(directory)):
                _sync_directory(directory)

    def _path(self, key: str) -> bytes:
        return os.path.join(self._objects, check_key(key))

    @contextmanager
    def _temporary_file(self, body: Body) -> Iterator[tuple[bytes, str]]:
        """A new file in ``tmp/`` that holds ``body``, on disk, and the etag that it will have under any name."""
        with self._tree:
            # Strictly rising, so that no two versions of an object share an etag, however coarse the clock.
            mtime = self._last_mtime = max(time.time_ns(), self._last_mtime + 1)
        path = os.path.join(self._temporary, b"%d" % mtime)
        try:
            yield path, _write(path, body, mtime)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _make_parents(self, path: bytes) -> list[bytes]:
        """Make the directories above ``path``; gives those, lowest first, whose names are not known to be on disk."""
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
        _sync_directory(os.path.dirname(path))
        for directory in undurable:
            _sync_directory(os.path.dirname(directory))
        with self._tree:
            if self._prunes == prunes:  # else one of them may be gone, and another of the same name not on disk
                self._durable.update(undurable)

    def _prune(self, directory: bytes) -> bytes:
        """Remove ``directory`` and those above it while they are empty; gives the lowest one that stays."""
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
        """Files below ``base`` (empty, or ending in a slash) in key order; a directory sorts as name and slash."""
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
        heapq.heapify(ordered)  # a page needs the lowest few of what may be very many
        while ordered:
            name = heapq.heappop(ordered)
            if name.endswith(b"/"):
                yield from self._walk(name, prefix, after)
            else:
                with suppress(*_ABSENT):
                    yield name, os.stat(os.path.join(self._objects, name))


def make_directories(path: bytes) -> None:
    """Make a directory and those above it, each on disk when this returns."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        os.mkdir(directory)
        _sync_directory(os.path.dirname(directory))


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
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.utime(descriptor, ns=(mtime, mtime))
        os.fsync(descriptor)
        return _etag(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _read(descriptor: int, start: int, length: int) -> bytes:
    """Exactly what the file holds there: a file that has a name no longer changes."""
    parts = []
    while length > 0 and (part := os.pread(descriptor, length, start)):
        parts.append(part)
        start += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _sync_directory(path: bytes) -> None:
    """fsync a directory; one that is gone needs none, since then so is the object in it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except _ABSENT:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Operating system errors as KafScale's.

    A full disk is Unavailable, not Refused: retention or an operator frees space while the process runs, and what was
    buffered must then be stored and not have been given up.
    """
    try:
        yield
    except OSError as error:
        kind = Refused if error.errno in _REFUSED else Unavailable
        raise kind(f"{key}: {error.strerror or error}") from error
