"""Blocking access to the bucket, S3 or a local directory, for use in tasks."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import certifi
from minio import Minio
from minio.error import MinioException, S3Error
from urllib3 import PoolManager, Retry, Timeout
from urllib3.exceptions import HTTPError

from kafscale.errors import Unavailable
from kafscale.objects.interface import MAX_KEYS
from kafscale.objects.packs import Packs

_GONE = ("NoSuchKey", "NoSuchObject")
# What the client raises if a server refuses, is unreachable or disconnects; ValueError for an invalid address.
_FAILURES = (MinioException, HTTPError, OSError, ValueError)
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_RETRIES = 3
_ATTEMPTS = 10
_RECENT_NS = 100_000_000
"""A file that was changed since may change again without another time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """One object; ``size`` in bytes."""

    key: str
    size: int


class Bucket(Protocol):
    """A bucket, which is sent to every task. Methods raise Unavailable if they cannot read."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield all objects whose keys begin with ``prefix``, which ends with a slash, in no particular order."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return the object, or None if it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class LocalBucket:
    """The data directory of a process, which may be running."""

    data_dir: Path

    def list(self, prefix: str) -> Iterator[Listed]:
        root = self.data_dir / "objects"
        if not root.is_dir():
            raise Unavailable(f"{root} cannot be listed: no such directory")
        for directory, _, names in os.walk(root / prefix, onerror=_not_listed):
            for name in names:
                path = Path(directory) / name
                try:
                    size = path.stat().st_size
                except OSError as error:
                    _not_listed(error)
                else:
                    yield Listed(path.relative_to(root).as_posix(), size)
        after = ""
        while page := self._of_packs(partial(Packs.list_from, prefix=prefix, start_after=after, limit=MAX_KEYS)):
            yield from (Listed(info.key, info.size) for info in page)
            after = page[-1].key

    def get(self, key: str) -> bytes | None:
        try:
            return (self.data_dir / "objects" / key).read_bytes()
        except FileNotFoundError:
            return self._of_packs(lambda packs: packs.read(key).body if key in packs else None)
        except OSError as error:
            raise Unavailable(f"{key} cannot be read: {error.strerror}") from error

    def _of_packs(self, read: Callable[[Packs], T]) -> T:
        """Return what ``read`` finds of the objects that share files. The process may change these meanwhile."""
        directory = self.data_dir / "packs"
        attempts = 0
        while True:
            attempts += 1
            try:
                return read(_loaded(self.data_dir, _state(directory)))
            except (OSError, Unavailable) as error:
                if attempts == _ATTEMPTS:
                    raise Unavailable(f"{directory} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """A bucket of S3. ``endpoint`` is an http or https URL, or empty for Amazon S3."""

    bucket: str
    endpoint: str = ""
    region: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    def list(self, prefix: str) -> Iterator[Listed]:
        try:
            for found in _client(self).list_objects(self.bucket, prefix=prefix, recursive=True):
                yield Listed(str(found.object_name), int(found.size or 0))
        except _FAILURES as error:
            raise Unavailable(f"bucket {self.bucket} cannot be listed: {error}") from error

    def get(self, key: str) -> bytes | None:
        try:
            reply = _client(self).get_object(self.bucket, key)
            try:
                return bytes(reply.read())
            finally:
                reply.close()
                reply.release_conn()
        except _FAILURES as error:
            if isinstance(error, S3Error) and error.code in _GONE:
                return None
            raise Unavailable(f"{key} cannot be read from bucket {self.bucket}: {error}") from error


def _state(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of each file. Not the same twice within the precision of the time of a change."""
    files = [(file.name, file.stat()) for file in directory.iterdir()] if directory.is_dir() else []
    state = sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)
    now = time.time_ns()
    if any(now - changed < _RECENT_NS for _, _, changed in state):
        state.append(("now", 0, now))
    return tuple(state)


@lru_cache(maxsize=1)
def _loaded(data_dir: Path, state: tuple[tuple[str, int, int], ...]) -> Packs:
    """Return what the files of ``state`` hold."""
    packs = Packs(data_dir, sync=False)
    if state:
        packs.load()
    return packs


@lru_cache(maxsize=1)
def _client(bucket: S3Bucket) -> Minio:
    """Return the client of this process, so that all requests share connections."""
    address = urlsplit(bucket.endpoint or "https://s3.amazonaws.com")
    return Minio(
        address.netloc,
        bucket.access_key,
        bucket.secret_key,
        session_token=bucket.session_token or None,
        secure=address.scheme == "https",
        region=bucket.region or None,
        # Like the client's own pool, whose timeout would be half an hour.
        http_client=PoolManager(
            timeout=Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            retries=Retry(total=_RETRIES, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
            cert_reqs="CERT_REQUIRED",
            ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
        ),
    )


def _not_listed(error: OSError) -> None:
    # Ignore files that are deleted during the listing.
    if not isinstance(error, FileNotFoundError):
        raise Unavailable(f"{error.filename} cannot be listed: {error.strerror}") from error
