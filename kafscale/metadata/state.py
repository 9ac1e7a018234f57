"""The state of the in-process stores: keys, revisions, leases and the history that watches read.

Pure: the time is an argument and nothing waits. A change is first *evaluated*, then made durable by the shell
(``local.py``), then *applied*. It is not visible before that.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kafscale.metadata.interface import (
    MAX_NESTED,
    MAX_OPERATIONS,
    MAX_PLAIN,
    MAX_REQUEST_BYTES,
    Compacted,
    Event,
    Get,
    KeyValue,
    LeaseNotFound,
    Operation,
    Put,
    TooLarge,
    TxnResult,
    Unchanged,
)

FIRST_REVISION = 1
"""The revision of an empty store, as in etcd. The first write makes revision 2."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the history kept for watches. The lower one applies."""

    revisions: int = 10_000
    bytes: int = 32 << 20


@dataclass(slots=True)
class _Lease:
    ttl_seconds: int
    deadline: float
    keys: set[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect of a transaction: its result, and the changes to make durable and apply, if any."""

    result: TxnResult
    events: tuple[Event, ...]


@dataclass(slots=True)
class Pending:
    """Changes that were evaluated one after another and are not applied yet. ``values``: what they leave, by key."""

    changes: list[tuple[Event, ...]] = field(default_factory=list)
    values: dict[str, KeyValue | None] = field(default_factory=dict)

    def add(self, events: tuple[Event, ...]) -> None:
        if events:
            self.changes.append(events)
            self.values.update({event.key: event.value for event in events})


def check_size(compares: Sequence[Unchanged], *branches: Sequence[Operation]) -> None:
    """Raise TooLarge if a transaction exceeds the limits, ValueError if a branch writes a key twice."""
    most = max(map(len, branches))
    if len(compares) > (MAX_PLAIN if most <= MAX_PLAIN else MAX_NESTED) or most > MAX_OPERATIONS:
        raise TooLarge(f"{len(compares)} compares and {most} operations")
    size = sum(len(compare.key.encode()) for compare in compares)
    for branch in branches:
        written = [operation.key for operation in branch if not isinstance(operation, Get)]
        if len(set(written)) != len(written):
            raise ValueError("a key is written twice in one branch")
        size += sum(len(o.key.encode()) + (len(o.value) if isinstance(o, Put) else 0) for o in branch)
    if size > MAX_REQUEST_BYTES:
        raise TooLarge(f"{size} bytes of keys and values, more than {MAX_REQUEST_BYTES}")


class State:
    """Keys at the newest revision, leases, and the last changes."""

    def __init__(self, revision: int = FIRST_REVISION, items: Iterable[KeyValue] = (), limits: Limits | None = None):
        self.revision = revision
        self._items = {item.key: item for item in items}
        self._order = sorted(self._items)
        self._limits = limits or Limits()
        # One entry per revision without gaps, so that a revision is found by its distance from the first.
        self._history: deque[tuple[Event, ...]] = deque()
        self._history_bytes = 0
        self._leases: dict[int, _Lease] = {}

    @property
    def oldest_watchable(self) -> int:
        """The lowest revision from which a watch can be served."""
        return self.revision + 1 - len(self._history)

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def read_prefix(self, prefix: str, *, after: str = "", limit: int | None = None) -> tuple[KeyValue, ...]:
        """Return the keys of a prefix above ``after``, in order, at most ``limit``."""
        found: list[KeyValue] = []
        start = bisect_right(self._order, after) if after else bisect_left(self._order, prefix)
        for index in range(start, len(self._order)):
            key = self._order[index]
            if not key.startswith(prefix) or len(found) == limit:
                break
            found.append(self._items[key])
        return tuple(found)

    def evaluate(
        self,
        compares: Sequence[Unchanged],
        then: Sequence[Operation],
        otherwise: Sequence[Operation],
        pending: Pending,
    ) -> Outcome:
        """Return what the transaction would do after the ``pending`` changes. Raises LeaseNotFound."""

        def current_of(key: str) -> KeyValue | None:
            return pending.values[key] if key in pending.values else self._items.get(key)

        def mod_revision(key: str) -> int:
            item = current_of(key)
            return item.mod_revision if item else 0

        succeeded = all(mod_revision(compare.key) == compare.mod_revision for compare in compares)
        before = self.revision + len(pending.changes)
        revision = before + 1
        written: dict[str, KeyValue | None] = {}
        reads: list[KeyValue | None] = []
        for operation in then if succeeded else otherwise:
            key = operation.key
            current = written[key] if key in written else current_of(key)
            if isinstance(operation, Get):
                reads.append(current)
            elif isinstance(operation, Put):
                if operation.lease and operation.lease not in self._leases:
                    raise LeaseNotFound(f"lease {operation.lease}")
                created = current.create_revision if current else revision
                written[key] = KeyValue(key, bytes(operation.value), created, revision, operation.lease)
            elif current is not None:
                written[key] = None
        events = tuple(Event(key, value, revision) for key, value in written.items())
        return Outcome(TxnResult(succeeded, revision if events else before, tuple(reads)), events)

    def apply(self, events: tuple[Event, ...]) -> None:
        """Apply an evaluated change, whose revision must be the next one."""
        if any(event.revision != self.revision + 1 for event in events) or not events:
            raise ValueError(f"not a change from revision {self.revision}")
        for event in events:
            self._set(event.key, event.value)
        self.revision += 1
        self._history.append(events)
        self._history_bytes += _weight(events)
        while self._history and (
            len(self._history) > self._limits.revisions or self._history_bytes > self._limits.bytes
        ):
            self._forget_one()

    def changes(self, prefix: str, from_revision: int) -> tuple[tuple[Event, ...], int]:
        """Return the first changes under ``prefix`` at or after ``from_revision``, and the revision to continue from.

        The batch is empty if there are no changes yet. Raises Compacted.
        """
        oldest = self.oldest_watchable
        from_revision = max(from_revision, FIRST_REVISION + 1)
        if from_revision < oldest:
            raise Compacted(f"revision {from_revision} was requested, but the oldest kept is {oldest}")
        for index in range(from_revision - oldest, len(self._history)):
            batch = tuple(event for event in self._history[index] if event.key.startswith(prefix))
            if batch:
                return batch, oldest + index + 1
        return (), max(from_revision, self.revision + 1)

    def compact(self, revision: int) -> None:
        """Discard the changes of revisions below ``revision``."""
        while self._history and self.oldest_watchable < revision:
            self._forget_one()

    def grant(self, lease: int, ttl_seconds: int, now: float) -> None:
        self._leases[lease] = _Lease(ttl_seconds, now + ttl_seconds, set())

    def keep_alive(self, lease: int, now: float) -> int:
        """Renew the lease and return its time to live in seconds. Raises LeaseNotFound."""
        found = self._leases.get(lease)
        if found is None:
            raise LeaseNotFound(f"lease {lease}")
        found.deadline = now + found.ttl_seconds
        return found.ttl_seconds

    def next_deadline(self) -> float:
        """Return when the next lease expires, or infinity without leases."""
        return min((lease.deadline for lease in self._leases.values()), default=float("inf"))

    def due(self, now: float) -> list[int]:
        """Return the expired leases in the order of their expiry."""
        expired = [(lease.deadline, lease_id) for lease_id, lease in self._leases.items() if lease.deadline <= now]
        return [lease_id for _, lease_id in sorted(expired)]

    def end_of_lease(self, lease: int) -> tuple[Event, ...]:
        """Return the change that deletes the lease's keys, to be applied before `forget_lease`."""
        keys = self._leases[lease].keys if lease in self._leases else ()
        return tuple(Event(key, None, self.revision + 1) for key in sorted(keys))

    def forget_lease(self, lease: int) -> None:
        self._leases.pop(lease, None)

    def _set(self, key: str, value: KeyValue | None) -> None:
        before = self._items.get(key)
        if before is not None and before.lease in self._leases:
            self._leases[before.lease].keys.discard(key)
        if value is None:
            del self._items[key]
            del self._order[bisect_left(self._order, key)]
            return
        if before is None:
            insort(self._order, key)
        self._items[key] = value
        if value.lease:
            self._leases[value.lease].keys.add(key)

    def _forget_one(self) -> None:
        self._history_bytes -= _weight(self._history.popleft())


def _weight(events: tuple[Event, ...]) -> int:
    return sum(256 + len(event.key) + (len(event.value.value) if event.value else 0) for event in events)
