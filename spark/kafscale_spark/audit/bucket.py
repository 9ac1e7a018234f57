"""The bucket, read with plain blocking calls, so that it can be read in tasks: S3, or the local directory."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import certifi
from minio import Minio
from minio.error import MinioException, S3Error
from urllib3 import PoolManager, Retry, Timeout
from urllib3.exceptions import HTTPError

from kafscale.errors import Unavailable

_GONE = ("NoSuchKey", "NoSuchObject")
# What the client lets through of a server that refuses, is not there, or breaks off; ValueError: an address of none.
_FAILURES = (MinioException, HTTPError, OSError, ValueError)
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Listed:
    """One object; ``size`` in bytes."""

    key: str
    size: int


class Bucket(Protocol):
    """Goes to every task. What cannot be read raises Unavailable."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """All objects whose keys begin with ``prefix``, a directory's with its slash, in no order."""
        ...

    def get(self, key: str) -> bytes | None:
        """The object; None: there is none."""
        ...


@dataclass(frozen=True, slots=True)
class LocalBucket:
    """A process's data directory, which may be in use."""

    data_dir: Path

    def list(self, prefix: str) -> Iterator[Listed]:
        root = self.data_dir / "objects"
        if not root.is_dir():
            raise Unavailable(f"{root} cannot be listed: there is no such directory")
        for directory, _, names in os.walk(root / prefix, onerror=_not_listed):
            for name in names:
                path = Path(directory) / name
                try:
                    size = path.stat().st_size
                except OSError as error:
                    _not_listed(error)
                else:
                    yield Listed(path.relative_to(root).as_posix(), size)

    def get(self, key: str) -> bytes | None:
        try:
            return (self.data_dir / "objects" / key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"{key} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """``endpoint``: an http or https address; empty: Amazon S3."""

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


@lru_cache(maxsize=1)
def _client(bucket: S3Bucket) -> Minio:
    """One for all requests of a process, so that they have their connections in common."""
    address = urlsplit(bucket.endpoint or "https://s3.amazonaws.com")
    return Minio(
        address.netloc,
        bucket.access_key,
        bucket.secret_key,
        session_token=bucket.session_token or None,
        secure=address.scheme == "https",
        region=bucket.region or None,
        # As the client's own, which waits for half an hour.
        http_client=PoolManager(
            timeout=Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            retries=Retry(total=_RETRIES, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
            cert_reqs="CERT_REQUIRED",
            ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
        ),
    )


def _not_listed(error: OSError) -> None:
    # What is deleted meanwhile is not there.
    if not isinstance(error, FileNotFoundError):
        raise Unavailable(f"{error.filename} cannot be listed: {error.strerror}") from error
