"""The object store's interface: seven operations and five kinds of errors.

Implementations: ``local.py`` (a directory), ``s3.py``, ``memory.py`` (with programmable faults). Any of them can be
wrapped: ``metrics.py``, next to the store, reports each single request to counters and to ``availability.py``;
``retry.py``, around that, retries.

Keys are ``/``-separated paths without a leading slash, 1 to 1024 bytes of UTF-8. Each segment has 1 to 255 bytes, is
not ``.`` or ``..``, and contains no control characters. ``keys.py`` checks keys and raises ValueError for an invalid
one, which is a bug of the caller. No key may be a directory of another (``a`` and ``a/b``), because a file system
cannot hold both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafscale.errors import KafscaleError
from kafscale.records.checksum import Buffer


class Pieces:
    """The body of an object in several buffers, which must not change. ``packs.py`` writes them without joining them.

    ``bytes`` joins them.
    """

    __slots__ = ("_size", "buffers")

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = buffers
        self._size = sum(map(len, buffers))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.buffers)


Body = Buffer | Pieces


def pieces_of(body: Body) -> Sequence[Buffer]:
    """Return the buffers that are the body, one after another."""
    return body.buffers if isinstance(body, Pieces) else (body,)


def whole(body: Body) -> Buffer:
    """Return the body as one buffer."""
    return bytes(body) if isinstance(body, Pieces) else body


MAX_KEYS = 1000
"""The maximum number of objects in a page of a listing, and of keys in a delete."""
MOST_CLOCK_SKEW_SECONDS = 5.0
"""The maximum difference to the store's clock. Beyond it, signatures live longer or shorter than the signer assumes."""


def clocks_agree(skew: float | None) -> bool:
    """Return whether a store's clock, by its ``clock_skew_seconds``, is close enough to rely on the local clock."""
    return skew is None or abs(skew) <= MOST_CLOCK_SKEW_SECONDS


class ObjectNotFound(KafscaleError):
    """No object has this key."""


class PreconditionFailed(KafscaleError):
    """The object exists already (put_if_absent), or is absent or has another etag (replace_if_match).

    A put whose answer was lost may have succeeded. A caller that retries a put must read the object back to find out.
    """


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object's entry in a listing. ``size`` is in bytes."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Object:
    """An object's bytes and their etag."""

    body: bytes
    etag: str


class ObjectStore(Protocol):
    """Listings are in the order of the keys' UTF-8 bytes. Etags are opaque and survive restarts.

    Every method may raise ``kafscale.errors.Unavailable`` (no answer, 5xx, throttled, disk full: the outcome is
    unknown, retry later) and ``kafscale.errors.Refused`` (the store rejects the request permanently).
    """

    @property
    def settle_seconds(self) -> float:
        """How long after a process has died its last requests may still take effect. 0 for a local directory."""
        ...

    @property
    def clock_skew_seconds(self) -> float | None:
        """The store's clock minus this machine's, as last measured. None if it is unknown or the same clock."""
        ...

    def now(self) -> float:
        """Return the time with which requests are dated, in seconds."""
        ...

    async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        """Create the object durably and return its etag.

        Atomic: if several callers race, one succeeds and the others get PreconditionFailed. Readers never see a part.
        ``send_seconds``: S3 is sent a large body over about so many seconds, so that other requests wait less. Other
        stores ignore it.
        """
        ...

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        """Replace the object if it has ``etag``, atomically and durably; return the new etag. Or PreconditionFailed."""
        ...

    async def get(self, key: str) -> Object:
        """Return the whole object, or raise ObjectNotFound."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start``, or fewer if the object ends before that. Raises ObjectNotFound."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Return size and etag, or raise ObjectNotFound."""
        ...

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        """Return, in order, up to ``limit`` (1 to 1000) objects with keys under ``prefix`` and above ``start_after``.

        Fewer than ``limit`` objects mean that there are no more.
        """
        ...

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        """Delete up to 1000 objects. Absent ones are not an error. If it raises, any of them may be deleted.

        S3 rejects the deletes ``settle_seconds`` after ``dated``, which defaults to this call, and no wrapper retries
        them. A caller that gets ``dated`` from `now` before it checks its lease knows by when each delete has taken
        effect or never will, even if the process is paused in between.

        ``unused``: nobody will put or read these keys again, so a delete may take effect at any later time. S3 gets one
        request for all of them.
        """
        ...
