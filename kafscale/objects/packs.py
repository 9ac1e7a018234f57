"""Objects as records of a few files: a blocking half of ``local.py``, for objects that are many and short-lived.

Appending to a file takes less time than creating one. ``packs/`` holds files that are named by rising numbers.
A record is a header, a key and a body. It stores an object, or, with the stamp 0, deletes one. Of several records for a
key the last one counts. A file is deleted when all older ones are and it holds no object any more. If deleted objects
take much space, the objects of the oldest file are copied first.

Some deleted files are kept and become the next ones, because overwriting takes less time than adding to a file. What
follows the records of such a file is from an older one. It does not count, because the checksum of a record covers the
number of the file. The first record of such a file has no key, and says how large it was. When the file is full or
closed, another record without a key ends it, and what follows is cut off. So only a file without such an end, and with
at least its former size, may end with bytes that are no record.

A crash can leave a part of a record only at the end of the newest file. The next process cuts that off and begins a
new file. Without fsync, a power failure can also damage other records. An object with a damaged body is lost. After a
damaged header, the rest of the file is lost, also deletions in it, so that deleted objects can return. In a file that
was used again and not closed, the last records count as what was there before if all of them are damaged.
"""

import errno
import os
import threading
import time
from bisect import bisect_left, bisect_right, insort
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kafscale.objects.disk import make_directories, read_at, sync_directory, translated
from kafscale.objects.interface import Body, Object, ObjectInfo, ObjectNotFound, PreconditionFailed, pieces_of
from kafscale.objects.pack_records import DELETED, has_record, is_ended, record_at, record_head, record_size

_NAME_DIGITS = 20
_PACK_BYTES = 16 << 20
_SPARE_BYTES = 4 * _PACK_BYTES
"""How many bytes of deleted objects are kept, besides as many as there are of others."""
_SPARE_FILES = 4
"""How many deleted files are kept for the next ones."""
_SPARE_SUFFIX = b".spare"
_UNLOCKED_READS = 3
"""How often a read is tried without keeping others from putting objects."""
_MOST_BUFFERS = 1024  # IOV_MAX
_COPIED_BYTES = 1 << 20
"""How many bytes are copied before others may use the files."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged record. Its object is lost, and with a damaged header all that follows in the file."""

    path: str
    position: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the body of an object is. ``stamp``: the ns of its record, which make its etag."""

    pack: int
    position: int
    size: int
    stamp: int

    @property
    def etag(self) -> str:
        return f"{self.stamp:x}-{self.size:x}"


class Packs:
    """The objects in ``packs/`` under ``root``. Safe to call from several threads.

    ``sync``: every change is on disk when the call returns. Else most survive only the end of this process.
    """

    def __init__(self, root: Path, *, sync: bool) -> None:
        self._directory = os.fsencode(root / "packs")
        self._sync = sync
        self._lock = threading.Lock()
        self._tidying = threading.Lock()
        # Changed only with the lock, and read also without it.
        self._places: dict[str, _Place] = {}
        self._ordered: list[bytes] = []
        # By number, oldest first. The last one is open for appending if ``_file`` is set.
        self._sizes: dict[int, int] = {}
        self._objects: dict[int, int] = {}
        self._live_bytes = 0
        self._next_pack = 1
        self._last_stamp = 0
        self._file: int | None = None
        # The name of the newest file may not be on disk.
        self._unsynced_name = False
        # Deleted files that become the next ones, and the former size of the newest file, 0 if it had none.
        self._spares: list[bytes] = []
        self._former_size = 0

    def __contains__(self, key: str) -> bool:
        return key in self._places

    @property
    def is_busy(self) -> bool:
        """Whether a call changes objects, so that others may wait for it."""
        return self._lock.locked()

    def prepare(self) -> list[Damage]:
        """Read what is there, and delete files without objects. Return what is damaged. Raises OSError."""
        make_directories(self._directory)
        for name in os.listdir(self._directory):
            if name.removesuffix(_SPARE_SUFFIX).isdigit() and name.endswith(_SPARE_SUFFIX):
                os.unlink(os.path.join(self._directory, name))
        damage = self.load()
        if self._sizes:
            newest = next(reversed(self._sizes))
            with open(self._path(newest), "rb+") as file:
                self._end(file.fileno(), newest)
                if self._sync:
                    # The last process may have ended before it did this.
                    os.fdatasync(file.fileno())
                    sync_directory(self._directory)
        self._tidy(spares=0)
        return damage

    def load(self) -> list[Damage]:
        """Read what is there, without changing it. Return what is damaged.

        Raises OSError, and FileNotFoundError if another process has deleted a file meanwhile.
        """
        damage = list[Damage]()
        names = (name for name in os.listdir(self._directory) if len(name) == _NAME_DIGITS and name.isdigit())
        for number in sorted(map(int, names)):
            self._objects[number] = 0
            self._next_pack = number + 1
            with open(self._path(number), "rb", buffering=1 << 16) as file:
                size = self._sizes[number] = os.fstat(file.fileno()).st_size
                damaged = self._read_records(number, file)
            if damaged or self._sizes[number] < size:
                # The file may have been deleted and overwritten while it was read.
                os.stat(self._path(number))
            damage += (Damage(os.fsdecode(self._path(number)), position) for position in damaged)
        return damage

    def close(self) -> None:
        """End the newest file, and close it."""
        if self._file is not None:
            file, self._file = self._file, None
            self._end(file, self._next_pack - 1)
            os.close(file)

    def create(self, key: str, body: Body) -> str:
        with translated(key), self._lock:
            if key in self._places:
                raise PreconditionFailed(f"{key} exists")
            return self._put(key, body, self._stamp()).etag

    def replace(self, key: str, body: Body, etag: str) -> str:
        with translated(key), self._lock:
            there = self._places.get(key)
            if there is None or there.etag != etag:
                raise PreconditionFailed(f"{key} does not have etag {etag}")
            return self._put(key, body, self._stamp()).etag

    def read(self, key: str) -> Object:
        place, body = self._body(key, 0, None)
        return Object(body, place.etag)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self._body(key, start, length)[1]

    def info(self, key: str) -> ObjectInfo:
        place = self._place(key)
        return ObjectInfo(key, place.size, place.etag)

    def list_from(self, prefix: str, start_after: str, limit: int) -> list[ObjectInfo]:
        page: list[ObjectInfo] = []
        after, begin = start_after.encode(), prefix.encode()
        with self._lock:
            first = bisect_right(self._ordered, after) if after >= begin else bisect_left(self._ordered, begin)
            for encoded in self._ordered[first : first + limit]:
                if not encoded.startswith(begin):
                    break
                key = encoded.decode()
                place = self._places[key]
                page.append(ObjectInfo(key, place.size, place.etag))
        return page

    def delete(self, keys: list[str], *, sync: bool) -> None:
        """Delete those of the objects that are here. ``sync``: they stay deleted also after a power failure.

        On a full disk, deletes without ``sync`` free space too, but may be undone when the process ends.
        """
        with self._lock:
            here = [key for key in keys if key in self._places]
            if not here:
                return
            spares = _SPARE_FILES
            try:
                file, number = self._open_file()
                heads = b"".join(record_head(key, b"", DELETED, number) for key in here)
                self._append(file, number, heads, b"", sync=sync or self._sync)
            except OSError:
                if sync or self._sync:
                    with translated(here[0]):
                        raise
                spares = 0
            for key in here:
                self._forget(key)
        with translated(here[0]):
            self._tidy(spares=spares)

    def _path(self, number: int) -> bytes:
        return os.path.join(self._directory, b"%020d" % number)

    def _stamp(self) -> int:
        """Return a strictly increasing time in ns, so that no two versions of an object have the same etag."""
        self._last_stamp = max(time.time_ns(), self._last_stamp + 1)
        return self._last_stamp

    def _place(self, key: str) -> _Place:
        place = self._places.get(key)
        if place is None:
            raise ObjectNotFound(key)
        return place

    def _body(self, key: str, start: int, length: int | None) -> tuple[_Place, bytes]:
        """Return a part of a body; all from ``start`` on if ``length`` is None."""
        with translated(key):
            for _ in range(_UNLOCKED_READS):
                with suppress(FileNotFoundError):  # it was copied to another file, or deleted
                    return self._part(key, start, length)
            with self._lock:
                return self._part(key, start, length)

    def _part(self, key: str, start: int, length: int | None) -> tuple[_Place, bytes]:
        """Raises FileNotFoundError if the file is deleted meanwhile, or becomes another one, which needs the lock."""
        place = self._place(key)
        file = os.open(self._path(place.pack), os.O_RDONLY | os.O_CLOEXEC)
        try:
            available = max(0, place.size - start)
            part = read_at(file, place.position + start, available if length is None else min(length, available))
        finally:
            os.close(file)
        # A deleted file may have been overwritten while it was read.
        os.stat(self._path(place.pack))
        return place, part

    def _put(self, key: str, body: Body, stamp: int) -> _Place:
        file, number = self._open_file()
        head = record_head(key, body, stamp, number)
        position = self._append(file, number, head, body, sync=self._sync) + len(head)
        place = _Place(number, position, len(body), stamp)
        self._remember(key, place)
        return place

    def _remember(self, key: str, place: _Place) -> None:
        former = self._places.get(key)
        self._places[key] = place
        self._count(key, place, 1)
        if former is None:
            insort(self._ordered, key.encode())
        else:
            self._count(key, former, -1)

    def _forget(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            del self._ordered[bisect_left(self._ordered, key.encode())]
            self._count(key, place, -1)

    def _count(self, key: str, place: _Place, objects: int) -> None:
        self._objects[place.pack] += objects
        self._live_bytes += objects * record_size(key, place.size)

    def _append(self, file: int, number: int, head: bytes, body: Body, *, sync: bool) -> int:
        """Write to the end of the file that `_open_file` has returned, and return the position."""
        start = self._sizes[number]
        end = start + len(head) + len(body)
        try:
            buffers = (head, *pieces_of(body))
            written = os.pwritev(file, buffers[:_MOST_BUFFERS], start)
            rest = memoryview(b"".join(buffers))[written:] if start + written < end else memoryview(b"")
            while rest:
                rest = rest[os.pwrite(file, rest, end - len(rest)) :]
            if sync:
                os.fdatasync(file)
                if self._unsynced_name:
                    sync_directory(self._directory)
                    self._unsynced_name = False
        except OSError:
            # The next record is written in the same place, and the disk may be full.
            with suppress(OSError):
                os.ftruncate(file, start)
            with suppress(OSError):
                self._free_spares(0)
            raise
        self._sizes[number] = end
        return start

    def _open_file(self) -> tuple[int, int]:
        """Return the file to append to and its number, a new one if the newest is full or of an earlier process."""
        if self._file is not None:
            if self._sizes[self._next_pack - 1] < _PACK_BYTES:
                return self._file, self._next_pack - 1
            self.close()
        number = self._next_pack
        path, size = self._path(number), 0
        self._former_size = 0
        if self._spares:
            self._former_size, size = _use_again(self._spares.pop(), path, number)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._unsynced_name = True
        self._next_pack = number + 1
        self._sizes[number], self._objects[number] = size, 0
        return self._file, number

    def _end(self, file: int, number: int) -> None:
        """Cut off what follows the records of the newest file. One that was used again says that it ends there.

        What follows does not count in any case, so an error does not matter.
        """
        with suppress(OSError):
            if self._former_size:
                self._sizes[number] += os.pwrite(file, record_head("", b"", 0, number), self._sizes[number])
                self._former_size = 0
            os.ftruncate(file, self._sizes[number])

    def _free_spares(self, kept: int) -> None:
        while len(self._spares) > kept:
            os.unlink(self._spares.pop())

    def _tidy(self, *, spares: int) -> None:
        """Delete the oldest files while they hold no objects or deleted ones take too much space.

        Objects are put meanwhile, so the lock is held only for short steps. At most so many ``spares`` remain.
        """
        if not self._tidying.acquire(blocking=False):
            return
        try:
            while (oldest := self._to_delete()) is not None:
                copies = set[int]()
                while self._objects[oldest]:
                    with self._lock:
                        copies |= self._copy_some(oldest)
                # The objects may have been on disk for long.
                for copy in copies:
                    with open(self._path(copy), "rb") as file:
                        os.fdatasync(file.fileno())
                if copies:
                    sync_directory(self._directory)
                spare = self._path(oldest) + _SPARE_SUFFIX
                with self._lock:
                    os.rename(self._path(oldest), spare)
                    del self._sizes[oldest], self._objects[oldest]
                if self._sync or len(self._spares) < spares:
                    # After a power failure, it must not have its former name and what overwrites it.
                    sync_directory(self._directory)
                with self._lock:
                    self._spares.append(spare)
                    self._free_spares(spares)
        finally:
            self._tidying.release()

    def _to_delete(self) -> int | None:
        """Return the oldest file if it is to be deleted."""
        with self._lock:
            oldest = next(iter(self._sizes), None)
            if oldest is None or (self._file is not None and oldest == self._next_pack - 1):
                return None
            too_much = sum(self._sizes.values()) > 2 * self._live_bytes + _SPARE_BYTES
            return oldest if too_much or not self._objects[oldest] else None

    def _copy_some(self, number: int) -> set[int]:
        """Append some objects of a file to the newest one, and return the files that have them now."""
        copies, size = set[int](), 0
        with open(self._path(number), "rb") as file:
            for key, place in [each for each in self._places.items() if each[1].pack == number]:
                body = read_at(file.fileno(), place.position, place.size)
                if len(body) < place.size:
                    raise OSError(errno.EIO, "a file has become shorter")
                copies.add(self._put(key, body, place.stamp).pack)
                size += place.size
                if size >= _COPIED_BYTES:
                    break
        return copies

    def _read_records(self, number: int, file: BinaryIO) -> list[int]:
        """Apply the records of a file, and set its size to where they end.

        Return the positions of damaged ones. One that is cut off at the end is none, nor is what the file held before.
        """
        end = self._sizes[number]
        damaged = list[int]()
        start = former_size = self._former_size = 0
        has_end = is_ended(file, end, number)
        while (record := record_at(file, start, end, number)) is not None:
            if record.is_damaged:
                if start < former_size <= end and not (has_end or has_record(file, record.end, number)):
                    break
                damaged.append(start)
                if record.key is None:
                    return damaged
                self._forget(record.key)
            elif not record.key:
                former_size = record.stamp
            elif record.stamp == DELETED:
                self._forget(record.key)
            else:
                self._remember(record.key, _Place(number, record.position, record.size, record.stamp))
                self._last_stamp = max(self._last_stamp, record.stamp)
            start = record.end
            if record.is_last:
                break
        self._sizes[number] = start
        self._former_size = former_size
        return damaged


def _use_again(spare: bytes, path: bytes, number: int) -> tuple[int, int]:
    """Make a deleted file the file ``number``. Return its size and that of its first record."""
    file = os.open(spare, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        head = record_head("", b"", size, number)
        if os.pwrite(file, head, 0) < len(head):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    finally:
        os.close(file)
    os.rename(spare, path)
    return size, len(head)
