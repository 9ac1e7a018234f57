"""Steps that both halves of ``local.py`` take on a file system."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from kafscale.errors import Refused, Unavailable

_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR})


def make_directories(path: bytes) -> None:
    """Create a directory and those above it, all on disk when this returns."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        os.mkdir(directory)
        sync_directory(os.path.dirname(directory))


def sync_directory(path: bytes) -> None:
    """fsync a directory. A directory that is gone needs none, because the object in it is gone too."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_at(descriptor: int, start: int, length: int) -> bytes:
    """Return the bytes of a file in that range, or fewer if the file ends before."""
    parts = []
    while length > 0 and (part := os.pread(descriptor, length, start)):
        parts.append(part)
        start += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Translate errors of the operating system into KafScale's.

    A full disk is Unavailable and not Refused: retention or an operator may free space while the process runs, and the
    buffered records must then be stored and not discarded.
    """
    try:
        yield
    except OSError as error:
        kind = Refused if error.errno in _REFUSED else Unavailable
        raise kind(f"{key}: {error.strerror or error}") from error
