"""The metadata store as the rest of KafScale sees it: etcd's semantics, narrowed to what is used.

Every write that applies makes one new *revision* of the whole store. A key has the revision that created it and the one
that changed it last (``mod_revision``; 0 stands for an absent key). A transaction compares, then does one of two lists
of operations, at one revision. Implementations: ``etcd.py``, ``sqlite.py``, ``memory.py``; one contract suite holds for
all.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from kafscale.errors import KafscaleError

MAX_PLAIN = 128
"""Compares, or operations of one branch, in a transaction (etcd's default)."""
MAX_NESTED = 64
"""Of what is above that, etcd takes transactions within a transaction: so many, each of so many operations."""
MAX_OPERATIONS = MAX_NESTED * MAX_NESTED
"""Operations of one branch. With more than MAX_PLAIN in any there are at most MAX_NESTED compares."""
MAX_REQUEST_BYTES = 1_500_000
"""Keys and values of one transaction (etcd's default is 1.5 MiB)."""


class Compacted(KafscaleError):
    """The asked revision is older than what the store still keeps: read the state anew and watch from there."""


class LeaseNotFound(KafscaleError):
    """The lease ran out or was revoked; all its keys are gone."""


class TooLarge(KafscaleError):
    """A transaction is over MAX_PLAIN, MAX_OPERATIONS or MAX_REQUEST_BYTES."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Unchanged:
    """True when ``key`` has ``mod_revision``; 0: when it is absent."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = 0  # the key lives no longer than this lease; 0: none


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Get:
    key: str


Operation = Put | Delete | Get


@dataclass(frozen=True, slots=True)
class TxnResult:
    """``revision`` is the store's after it; ``reads`` has one entry per Get of the branch that was done, in order."""

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
    """Some keys of a prefix, in key order, as they were at ``revision``; ``more``: others follow."""

    revision: int
    items: tuple[KeyValue, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One change: the new value, or None when the key was deleted (its lease's end included)."""

    key: str
    value: KeyValue | None
    revision: int


class Watch(Protocol):
    """Changes in revision order, none left out; all changes of one revision are in one batch."""

    async def next(self) -> tuple[Event, ...]:
        """Wait for the next batch. Raises Compacted, or Unavailable when the store cannot say what was missed."""
        ...


class MetadataStore(Protocol):
    """Reads are linearizable. Every method may raise ``kafscale.errors.Unavailable``: the outcome is then unknown."""

    async def get(self, key: str) -> KeyValue | None: ...

    async def read_prefix(self, prefix: str) -> Snapshot: ...

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        """A page of a prefix's keys, those above ``after``, as they were at ``revision``; 0: as they are now.

        For who must not hold them all at a time. Raises Compacted where that revision is not there any more.
        """
        ...

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        """When all compares hold do ``then``, else ``otherwise``; all at one revision, durably before this returns.

        A key may be written once in a branch. Raises TooLarge, LeaseNotFound (nothing was written).
        """
        ...

    def watch(self, prefix: str, from_revision: int) -> AbstractAsyncContextManager[Watch]:
        """Changes to keys of ``prefix`` with a revision of ``from_revision`` or later, those already made included."""
        ...

    async def grant_lease(self, ttl_seconds: int) -> int:
        """A new lease's id (never 0)."""
        ...

    async def keep_alive(self, lease: int) -> int:
        """Start the lease's time anew and give it, in seconds. Raises LeaseNotFound."""
        ...

    async def revoke_lease(self, lease: int) -> None:
        """End the lease; its keys are deleted in one revision. An unknown lease is no error."""
        ...

    async def compact(self, revision: int) -> None:
        """Forget what is only needed for watching from before ``revision``."""
        ...
