"""The metadata store's interface: the subset of etcd's semantics that KafScale uses.

Every write that applies makes one new *revision* of the whole store. A key has the revision that created it and the one
that changed it last (``mod_revision``, 0 if the key is absent). A transaction evaluates comparisons, then performs one
of two lists of operations, at one revision. The implementations ``etcd.py``, ``sqlite.py`` and ``memory.py`` pass one
contract test suite.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from kafscale.errors import KafscaleError

MAX_PLAIN = 128
"""The maximum number of compares, or of operations in a branch, of a plain transaction (etcd's default)."""
MAX_NESTED = 64
"""Larger transactions are sent as at most this many nested transactions of at most this many operations each."""
MAX_OPERATIONS = MAX_NESTED * MAX_NESTED
"""The maximum number of operations in a branch. If a branch exceeds MAX_PLAIN, at most MAX_NESTED compares fit."""
MAX_REQUEST_BYTES = 1_500_000
"""The maximum size of a transaction's keys and values (etcd's default is 1.5 MiB)."""


class Compacted(KafscaleError):
    """The requested revision is older than the history that is kept. Read the state again and watch from there."""


class LeaseNotFound(KafscaleError):
    """The lease expired or was revoked, and all its keys are deleted."""


class TooLarge(KafscaleError):
    """A transaction exceeds MAX_PLAIN, MAX_OPERATIONS or MAX_REQUEST_BYTES."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A comparison that holds if ``key`` has this ``mod_revision``, or is absent if that is 0."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = 0  # the key is deleted when this lease ends; 0 means no lease


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Get:
    key: str


Operation = Put | Delete | Get


@dataclass(frozen=True, slots=True)
class TxnResult:
    """``revision`` is the store's after the transaction; ``reads`` has one entry per Get of the branch done."""

    succeeded: bool
    revision: int
    reads: tuple[KeyValue | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys of a prefix, in key order, as they were at ``revision``."""

    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Some keys of a prefix, in key order, as they were at ``revision``. ``more`` is true if others follow."""

    revision: int
    items: tuple[KeyValue, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One change: the new value, or None if the key was deleted, also by the end of its lease."""

    key: str
    value: KeyValue | None
    revision: int


class Watch(Protocol):
    """Changes in revision order without gaps. All changes of a revision are in one batch."""

    async def next(self) -> tuple[Event, ...]:
        """Wait for the next batch. Raises Compacted, or Unavailable if the store cannot return the missed changes."""
        ...


class MetadataStore(Protocol):
    """Reads are linearizable. Every method may raise ``kafscale.errors.Unavailable``; its outcome is then unknown."""

    async def get(self, key: str) -> KeyValue | None: ...

    async def read_prefix(self, prefix: str) -> Snapshot: ...

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        """Return a page of a prefix's keys above ``after``, as they were at ``revision``, or are now if that is 0.

        For callers that must not hold all keys at once. Raises Compacted if that revision is no longer kept.
        """
        ...

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        """Do ``then`` if all compares hold, else ``otherwise``, at one revision. Writes are durable when this returns.

        A branch may write each key once. Raises TooLarge and LeaseNotFound, without having written anything.
        """
        ...

    def watch(self, prefix: str, from_revision: int) -> AbstractAsyncContextManager[Watch]:
        """Watch changes of keys under ``prefix`` from ``from_revision`` on, including those already made."""
        ...

    async def grant_lease(self, ttl_seconds: int) -> int:
        """Create a lease and return its id, which is never 0."""
        ...

    async def keep_alive(self, lease: int) -> int:
        """Renew the lease and return its time to live in seconds. Raises LeaseNotFound."""
        ...

    async def revoke_lease(self, lease: int) -> None:
        """Revoke the lease and delete its keys in one revision. An unknown lease is not an error."""
        ...

    async def compact(self, revision: int) -> None:
        """Discard the history that is needed only for watches from before ``revision``."""
        ...
