"""The sources of `kafscale inspect`: files and S3 objects."""

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Protocol

import trio

from kafscale.config.settings import load
from kafscale.errors import ConfigError, leaves
from kafscale.objects.interface import ObjectNotFound
from kafscale.objects.packs import Packs

_SCHEME = "s3://"


class Source(Protocol):
    """One file or object. ``read`` raises KafscaleError or OSError with a text for users."""

    @property
    def suffix(self) -> str: ...
    def read(self) -> bytes: ...
    def with_suffix(self, suffix: str) -> "Source":
        """Return the source with another suffix, whether it exists or not."""
        ...


class FileSource:
    """A file, or an object of a local directory that shares a file with others, by the path that its own would have."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.suffix = path.suffix

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            packed = _read_packed(self._path.absolute())
            if packed is None:
                raise
            return packed

    def with_suffix(self, suffix: str) -> "FileSource":
        return FileSource(self._path.with_suffix(suffix))


class S3Source:
    """An object in any bucket, read with the services' other S3 settings (KAFSCALE_S3_*)."""

    def __init__(self, bucket: str, key: str) -> None:
        self._bucket, self._key = bucket, key
        self.suffix = PurePosixPath(key).suffix

    def __str__(self) -> str:
        return f"{_SCHEME}{self._bucket}/{self._key}"

    def read(self) -> bytes:
        try:
            return trio.run(self._get)
        except ExceptionGroup as group:
            raise next(leaves(group)) from group

    def with_suffix(self, suffix: str) -> "S3Source":
        return S3Source(self._bucket, str(PurePosixPath(self._key).with_suffix(suffix)))

    async def _get(self) -> bytes:
        # Importing the S3 client takes as long as everything that other commands need.
        from kafscale.config.stores import S3Settings, open_credentials  # noqa: PLC0415
        from kafscale.objects.s3 import S3ObjectStore  # noqa: PLC0415

        settings = replace(load(S3Settings, os.environ), bucket=self._bucket)
        async with (
            open_credentials(settings, patience=0) as credentials,
            S3ObjectStore.open(settings.s3_config(), credentials=credentials) as store,
        ):
            return (await store.get(self._key)).body


def _read_packed(path: Path) -> bytes | None:
    """Return the object ``ROOT/objects/KEY`` from the files in ``ROOT/packs``; None if it is not there."""
    for objects in path.parents:
        if objects.name == "objects" and (objects.parent / "packs").is_dir():
            packs = Packs(objects.parent, sync=False)
            packs.load()
            key = path.relative_to(objects).as_posix()
            return packs.read(key).body if key in packs else None
    return None


def parse_source(text: str) -> Source:
    """Return the source that ``text`` names. Raises ConfigError for an incomplete s3:// address."""
    if not text.startswith(_SCHEME):
        return FileSource(Path(text))
    bucket, _, key = text.removeprefix(_SCHEME).partition("/")
    if not bucket or not key or key.endswith("/"):
        raise ConfigError(f"{text} is not s3://BUCKET/KEY")
    return S3Source(bucket, key)


def is_missing(error: Exception) -> bool:
    return isinstance(error, ObjectNotFound | FileNotFoundError)
