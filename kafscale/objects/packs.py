"""Objects as records of a few files: a blocking half of ``local.py``, for objects that are many and short-lived.

Appending to a file takes a fifth of the time of creating one. ``packs/`` holds files that are named by rising numbers.
A record is a header, a key and a body. It stores an object, or, with an empty body, deletes one. Of several records
for a key the last one counts. A file is deleted when all older ones are and it holds no object any more. If deleted
objects take much space, the objects of the oldest file are copied first.

A crash can leave a part of a record only at the end of the newest file, and the next process begins a new file.
Without fsync, a power failure can also damage other records, and all that follow a damaged header are lost.
"""

import os
import struct
import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import structlog

from kafscale.objects.disk import make_directories, sync_directory, translated
from kafscale.objects.interface import Body, Object, ObjectInfo, ObjectNotFound, PreconditionFailed
from kafscale.records.checksum import crc32c

log = structlog.get_logger()

_PACK_BYTES = 16 << 20
_SPARE_BYTES = 4 * _PACK_BYTES
"""How many bytes of deleted objects are kept, besides as many as there are of others."""

# CRC-32C of what follows and of the key; magic, size of the key, size of the body, ns since 1970 or _DELETED
_HEADER = struct.Struct(">I4sHQQ")
_MAGIC = b"KFSO"
_CHECKED_FROM = 4
_DELETED = 0


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

    ``sync``: every change is on disk when the call returns. Else it survives only the end of this process.
    """

    def __init__(self, root: Path, *, sync: bool) -> None:
        self._directory = os.fsencode(root / "packs")
        self._sync = sync
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._ordered: list[bytes] | None = None
        # By number, oldest first. The last one is open for appending if ``_file`` is set.
        self._sizes: dict[int, int] = {}
        self._objects: dict[int, int] = {}
        self._live_bytes = 0
        self._next_pack = 1
        self._last_stamp = 0
        self._file: int | None = None

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def prepare(self) -> None:
        """Read what is there, and delete files without objects."""
        make_directories(self._directory)
        for number in sorted(int(name) for name in os.listdir(self._directory)):
            self._sizes[number] = self._objects[number] = 0
            self._next_pack = number + 1
            with open(self._path(number), "rb", buffering=1 << 16) as file:
                self._sizes[number] = os.fstat(file.fileno()).st_size
                self._read_records(number, file)
        with self._lock:
            self._tidy()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

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
            if self._ordered is None:
                self._ordered = sorted(key.encode() for key in self._places)
            first = bisect_right(self._ordered, after) if after >= begin else bisect_left(self._ordered, begin)
            for encoded in self._ordered[first : first + limit]:
                if not encoded.startswith(begin):
                    break
                key = encoded.decode()
                place = self._places[key]
                page.append(ObjectInfo(key, place.size, place.etag))
        return page

    def delete(self, keys: list[str]) -> None:
        """Delete those of the objects that are here."""
        with self._lock:
            here = [key for key in keys if key in self._places]
            if not here:
                return
            with translated(here[0]):
                self._append(b"".join(record_head(key, 0, _DELETED) for key in here), b"")
                for key in here:
                    self._forget(key)
                self._tidy()

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
            while True:
                place = self._place(key)
                try:
                    file = os.open(self._path(place.pack), os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    if self._places.get(key) is place:
                        raise
                    continue  # it was copied to another file, or deleted
                try:
                    available = max(0, place.size - start)
                    size = available if length is None else min(length, available)
                    return place, os.pread(file, size, place.position + start)
                finally:
                    os.close(file)

    def _put(self, key: str, body: Body, stamp: int) -> _Place:
        header = record_head(key, len(body), stamp)
        position = self._append(header, body) + len(header)
        self._forget(key)
        return self._remember(key, _Place(next(reversed(self._sizes)), position, len(body), stamp))

    def _remember(self, key: str, place: _Place) -> _Place:
        self._places[key] = place
        self._ordered = None
        self._objects[place.pack] += 1
        self._live_bytes += place.size
        return place

    def _forget(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            self._ordered = None
            self._objects[place.pack] -= 1
            self._live_bytes -= place.size

    def _append(self, header: bytes, body: Body) -> int:
        """Write to the end of the newest file, and return the position."""
        file = self._open_file()
        number, start = next(reversed(self._sizes.items()))
        # After an error the next record is written over what was written of this one.
        written = os.pwritev(file, (header, body), start)
        end = start + len(header) + len(body)
        if start + written < end:
            rest = memoryview(header + bytes(body))[written:]
            while rest:
                rest = rest[os.pwrite(file, rest, end - len(rest)) :]
        if self._sync:
            os.fdatasync(file)
        self._sizes[number] = end
        return start

    def _open_file(self) -> int:
        """Return the file to append to, a new one if the newest is full or of an earlier process."""
        if self._file is not None:
            if self._sizes[self._next_pack - 1] < _PACK_BYTES:
                return self._file
            self.close()
        number = self._next_pack
        self._file = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._next_pack = number + 1
        self._sizes[number] = self._objects[number] = 0
        if self._sync:
            sync_directory(self._directory)
        return self._file

    def _tidy(self) -> None:
        """Delete the oldest files while they hold no objects or deleted ones take too much space."""
        deleted = False
        while self._sizes:
            oldest = next(iter(self._sizes))
            if self._file is not None and oldest == self._next_pack - 1:
                break
            if self._objects[oldest]:
                if sum(self._sizes.values()) <= 2 * self._live_bytes + _SPARE_BYTES:
                    break
                self._copy(oldest)
            os.unlink(self._path(oldest))
            del self._sizes[oldest], self._objects[oldest]
            deleted = True
        if deleted and self._sync:
            sync_directory(self._directory)

    def _copy(self, number: int) -> None:
        """Append all objects of a file to the newest one."""
        with open(self._path(number), "rb") as file:
            for key, place in [each for each in self._places.items() if each[1].pack == number]:
                self._put(key, os.pread(file.fileno(), place.size, place.position), place.stamp)

    def _read_records(self, number: int, file: BinaryIO) -> None:
        """Apply all records of a file up to its end or to the first one that is not whole."""
        end = self._sizes[number]
        position = 0
        while position < end:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return
            checksum, magic, key_size, size, stamp = _HEADER.unpack(header)
            key = file.read(key_size)
            if magic != _MAGIC or checksum != crc32c(key, crc32c(header[_CHECKED_FROM:])):
                log.warning("objects lost in a damaged file", path=os.fsdecode(self._path(number)), position=position)
                return
            position += _HEADER.size + key_size
            if position + size > end:
                return
            self._forget(key.decode())
            if stamp != _DELETED:
                self._remember(key.decode(), _Place(number, position, size, stamp))
                self._last_stamp = max(self._last_stamp, stamp)
            position += size
            file.seek(position)


def record_head(key: str, size: int, stamp: int) -> bytes:
    """Return the header and the key of a record (storage-format, "Local directory"), before a body of ``size`` bytes.

    ``stamp``: ns since 1970, or _DELETED.
    """
    encoded = key.encode()
    checked = _HEADER.pack(0, _MAGIC, len(encoded), size, stamp)[_CHECKED_FROM:]
    return _HEADER.pack(crc32c(encoded, crc32c(checked)), _MAGIC, len(encoded), size, stamp) + encoded
