"""The object store as the rest of KafScale sees it: seven operations and five ways to fail.

Implementations: ``local.py`` (a directory), ``s3.py``, ``memory.py`` (with programmable faults). Wrappers, each one
file, go around any of them: ``metrics.py`` next to the store tells of each single request, to counters and to
``health.py``; ``retry.py`` around it repeats.

Keys (``keys.py`` checks them; a bad one is the caller's mistake and raises ValueError): ``/``-separated paths without
leading slash, 1 to 1024 bytes of UTF-8, each segment 1 to 255 bytes, neither ``.`` nor ``..`` and without control
characters. No key may be another's directory (``a`` beside ``a/b``): a file system cannot hold both.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kafscale.errors import KafscaleError

Body = bytes | bytearray | memoryview

MAX_KEYS = 1000
"""Objects in one page of a listing, and keys in one delete."""
MOST_CLOCK_SKEW_SECONDS = 5.0
"""Between a store's clock and ours: beyond it a signature lives longer, or shorter, than whoever signs believes."""


def clocks_agree(skew: float | None) -> bool:
    """Whether a store's clock, by its ``clock_skew_seconds``, and ours are near enough to go by ours."""
    return skew is None or abs(skew) <= MOST_CLOCK_SKEW_SECONDS


class ObjectNotFound(KafscaleError):
    """No object has this key."""


class PreconditionFailed(KafscaleError):
    """The object exists already (put_if_absent), or is absent or has another etag (replace_if_match).

    A put whose answer was lost may have succeeded: whoever repeats one reads the object back before it believes this.
    """


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of one object; ``size`` in bytes."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Object:
    """One object's bytes with the etag that they have."""

    body: bytes
    etag: str


class ObjectStore(Protocol):
    """Listing order is the order of the keys' UTF-8 bytes. Etags are opaque, and stay as they are over a restart.

    Every method may raise ``kafscale.errors.Unavailable`` (no answer, 5xx, throttled, disk full: outcome unknown,
    repeat later) and ``kafscale.errors.Refused`` (the store answers and says no for good).
    """

    @property
    def settle_seconds(self) -> float:
        """How long after a process died its last requests may still take effect; 0 for a local directory."""
        ...

    @property
    def clock_skew_seconds(self) -> float | None:
        """The store's clock minus this machine's, as last seen; None: not known, or the same clock."""
        ...

    def now(self) -> float:
        """The time that requests are dated with, in seconds."""
        ...

    async def put_if_absent(self, key: str, body: Body) -> str:
        """Create the object, durably before this returns, and give its etag.

        Atomic: of several racers one wins and the others get PreconditionFailed; nobody ever reads a part of it.
        """
        ...

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        """Replace the object if it has ``etag``, atomically and durably; gives the new etag, or PreconditionFailed."""
        ...

    async def get(self, key: str) -> Object:
        """The whole object, or ObjectNotFound."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer where the object ends, none from its end on; or ObjectNotFound."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Size and etag, or ObjectNotFound."""
        ...

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        """Up to ``limit`` (1 to 1000) objects whose key begins with ``prefix`` and is above ``start_after``, in order.

        Fewer than ``limit`` means that there are no more.
        """
        ...

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None) -> None:
        """Delete up to 1000 objects; absent ones are no error. When it raises, any of them may be gone.

        On S3 the deletes are refused ``settle_seconds`` after ``dated``, or after this call, and no wrapper repeats
        them. A caller takes ``dated`` from `now` before it looks at its lease: then it knows by when each has landed or
        never will, even if the process is stopped in between.
        """
        ...
